"""Runs: their rows and leases, the worker, what a user does to a run, and what Redline starts itself."""

"""Runs: their rows and leases, the worker, the user's actions on a run, and runs started by Redline."""

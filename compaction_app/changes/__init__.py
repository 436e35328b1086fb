"""Changing a session: what is planned, what a person confirms, and what is recorded."""

"""Worked examples that a user can switch on from the configuration, and copy."""

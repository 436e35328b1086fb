"""Atomic, which began as pi: its files are pi's, with its own way of compacting them."""

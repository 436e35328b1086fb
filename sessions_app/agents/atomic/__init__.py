"""Atomic, a derivative of pi: its files are pi's, with a different kind of compaction."""

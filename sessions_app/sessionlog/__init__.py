"""The session file: its format, its tree, and what a model still sees of it. No I/O here.

Bytes → lines → entries → tree → branch → context. Rules come from DESIGN sections 1, 2 and 8.
"""

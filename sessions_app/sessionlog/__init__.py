"""The common model of sessions: format, tree, and the part that a model still sees. No I/O here.

Bytes → lines → entries → tree → branch → context.
"""

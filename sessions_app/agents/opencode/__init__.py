"""OpenCode's sessions: rows of a database, or documents of its older JSON store, read as lines."""

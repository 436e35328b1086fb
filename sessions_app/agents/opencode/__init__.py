"""OpenCode's sessions: a database, and the JSON files of older versions."""

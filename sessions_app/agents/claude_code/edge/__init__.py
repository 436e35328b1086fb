"""The modules that read or write files for Claude Code, or start processes."""

"""The modules that read or write files for Codex, or start processes."""

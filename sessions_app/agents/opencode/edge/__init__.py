"""The modules that read or write files for OpenCode, or start processes."""

"""The modules that read or write files for pi, or start processes."""

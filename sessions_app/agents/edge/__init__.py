"""The modules that agents share and that read or write files, or start processes."""

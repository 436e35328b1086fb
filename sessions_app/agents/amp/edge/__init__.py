"""The modules that read files for Amp."""

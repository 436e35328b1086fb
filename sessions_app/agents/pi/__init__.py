"""pi's session files, which Atomic writes as well: parsing them, and pi's readers and settings."""

"""What reads files for Amp."""

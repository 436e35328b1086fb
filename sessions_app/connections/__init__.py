"""Running agents that request a review before they compact: their connections, and the files that make them do so."""

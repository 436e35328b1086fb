"""Running agents that ask for a review before they compact: their connections, and the files that make them ask."""

"""What commands and views do to sessions: plan, commit, restore."""

"""Claude Code: its session files, and what its client makes of them."""

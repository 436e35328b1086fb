"""Claude Code: its session files, and how its client reads them."""

"""What reads or writes files for Claude Code, or starts processes."""

"""What reads or writes files for Codex, or starts processes."""

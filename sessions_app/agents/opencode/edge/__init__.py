"""What reads or writes files for OpenCode, or starts processes."""

"""What reads or writes files for pi, or starts processes."""

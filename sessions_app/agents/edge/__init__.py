"""What agents share that reads or writes files, or starts processes."""

"""Work in the background: rows that are queued, the workers that claim them, and the processes that they run in."""

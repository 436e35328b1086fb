"""The processes and threads in which queued rows are worked on: runs, and drafts of summaries."""

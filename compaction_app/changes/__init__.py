"""Changes of a session: the plan, its confirmations, and the records of what was written."""

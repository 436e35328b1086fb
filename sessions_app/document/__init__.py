"""The opened session: the one object that everything that reads or changes a session asks."""

"""EDGE: an agent's installed client, run on a copy of a session, to see what it would send to its model."""

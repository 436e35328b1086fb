"""The pure modules of pi: no Django, no network, no disk."""

"""The pure modules of Atomic: no Django, no network, no disk."""

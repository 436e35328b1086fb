"""What is pure of Atomic: no Django, no network, no disk."""

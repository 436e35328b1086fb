"""What is pure of pi: no Django, no network, no disk."""

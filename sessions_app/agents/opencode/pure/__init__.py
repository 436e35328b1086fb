"""What is pure of OpenCode: no Django, no network, no disk."""

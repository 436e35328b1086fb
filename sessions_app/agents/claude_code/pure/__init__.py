"""What is pure of Claude Code: no Django, no network, no disk."""

"""What is pure of Codex: no Django, no network, no disk."""

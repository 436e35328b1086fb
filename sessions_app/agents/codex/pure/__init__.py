"""The pure modules of Codex: no Django, no network, no disk."""

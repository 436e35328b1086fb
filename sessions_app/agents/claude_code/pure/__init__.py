"""The pure modules of Claude Code: no Django, no network, no disk."""

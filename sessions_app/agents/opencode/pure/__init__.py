"""The pure modules of OpenCode: no Django, no network, no disk."""

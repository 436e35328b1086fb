"""The pure modules that agents share: no Django, no network, no disk."""

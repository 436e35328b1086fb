"""The pure modules of Amp: no Django, no network, no disk."""

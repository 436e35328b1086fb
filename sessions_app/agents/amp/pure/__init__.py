"""What is pure of Amp: no Django, no network, no disk."""

"""What agents share that is pure: no Django, no network, no disk."""

"""pi's session files, which Atomic writes as well: lines → entries, and what pi makes of them."""

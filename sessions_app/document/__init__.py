"""An opened session: the object through which all other code reads or changes a session."""

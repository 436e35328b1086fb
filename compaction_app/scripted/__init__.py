"""A provider that plays scripts: both dialects on a real socket, without a model. No Django.

It shares no code with the client in `providers`, so that a misunderstanding on one side is not repeated on the other.
"""

"""A provider that plays scripts: both dialects on a real socket, without a model. No Django."""

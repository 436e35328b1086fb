"""EDGE: models over HTTP. The only package that imports httpx; it does not use Django."""

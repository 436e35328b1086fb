"""EDGE to models over HTTP, and the only importer of httpx. No Django."""

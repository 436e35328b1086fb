"""Tests that need a browser: Debian's Chromium, on a real server."""

"""Promises that only a browser can hold the pages to: Debian's Chromium, on a real server."""

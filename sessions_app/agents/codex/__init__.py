"""Codex's session files."""

#!/usr/bin/env python
"""Redline's commands and Django's, from a checkout."""

from redline.main import develop

if __name__ == "__main__":
    develop()

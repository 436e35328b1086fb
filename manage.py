#!/usr/bin/env python
"""Redline's commands, from a checkout."""

from redline.main import main

if __name__ == "__main__":
    main(for_developers=True)

"""`python -m redline COMMAND`."""

from .main import main

main()

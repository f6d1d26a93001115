"""`python -m needlemap`, where the command is on no path."""

from needlemap.cli import main

main()

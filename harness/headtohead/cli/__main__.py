"""``python -m headtohead.cli``: the same as ``h2h``."""

from headtohead.cli import main

main(prog_name="h2h")

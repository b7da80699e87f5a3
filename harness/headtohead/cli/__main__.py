"""Entry point of ``h2h`` and ``python -m headtohead.cli``.

The imports of the command line take a tenth of a second. This module, and the packages that Python imports before it,
import almost nothing, so that a Ctrl-C during those imports ends the command in one line.
"""

from headtohead.cli.interruption import start


def entry() -> None:
    """Run a command and exit."""
    start()
    from headtohead.cli.program import run_program

    run_program()


if __name__ == "__main__":
    entry()

"""The script ``headtohead-judge``: the command, with every error as one line."""

from __future__ import annotations

import os
import sys

import click

from headtohead_judge.command import command
from headtohead_judge.errors import HeadToHeadError, is_disk_error
from headtohead_judge.output import echo

NAME = "headtohead-judge"
BAD_INPUT = 2
INTERNAL_ERROR = 70
"""Exit code of an unexpected error (EX_SOFTWARE of sysexits.h)."""
INTERRUPTED = 130
BROKEN_PIPE = 141


def entry() -> None:
    """Run the command and exit; 2 is bad input, 70 an error of this program."""
    try:
        command.main(prog_name=NAME, standalone_mode=False, help_option_names=["-h", "--help"])
    except (KeyboardInterrupt, click.Abort):
        _exit("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The interpreter would fail again when it flushes the output at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE)
    except click.ClickException as error:
        _exit(f"{error.format_message().removesuffix('.')} (options: {NAME} --help)", BAD_INPUT)
    except Exception as error:
        if isinstance(error, HeadToHeadError) or is_disk_error(error):
            _exit(str(error), BAD_INPUT)
        _exit(f"internal error: {type(error).__name__}: {error}", INTERNAL_ERROR)


def _exit(message: str, code: int) -> None:
    echo(f"{NAME}: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    entry()

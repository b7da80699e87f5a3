"""Colours of verdicts and states on a terminal. A colour repeats its word, so output without colours means the same."""

from __future__ import annotations

import os
import re
from typing import IO, Any

GREEN = "32"
RED = "31"
YELLOW = "33"
CYAN = "36"

STATES = {
    "DONE": GREEN,
    "OK": GREEN,
    "LEASED": CYAN,
    "RUNNING": CYAN,
    "INTERRUPTED": YELLOW,
    "KILLED": YELLOW,
    "STALE": YELLOW,
    "WARN": YELLOW,
    "DIVERGED": RED,
    "FAIL": RED,
    "FAILED": RED,
    "OOM": RED,
    "TIMEOUT": RED,
}
"""Colours of the states of runs and of checks, which are words in capitals."""

VERDICTS = {
    "better": GREEN,
    "worse": RED,
    "larger": CYAN,
    "smaller": CYAN,
    "equivalent": YELLOW,
    "identical": YELLOW,
    "no difference": YELLOW,
    "no verdict": YELLOW,
    "same by construction": YELLOW,
}
"""Colours of the beginnings of verdicts, in cells of tables."""

_STATE = re.compile(rf"(?<![\w/.-])(?:{'|'.join(STATES)})(?![\w/-])")
_VERDICT_CELL = re.compile(rf"(?<=\S  )( *)({'|'.join(VERDICTS)})\b((?: \w+)*)")


def has_colours(stream: IO[Any]) -> bool:
    """Return whether output to a stream is coloured: on a terminal, or with FORCE_COLOR, but never with NO_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def coloured(line: str) -> str:
    """Return a printed line with colours: states anywhere, a verdict if it begins a cell after another one."""
    line = _VERDICT_CELL.sub(
        lambda match: match[1] + _in_colour(match[2] + match[3], VERDICTS[match[2]]), line
    )
    return _STATE.sub(lambda match: _in_colour(match[0], STATES[match[0]]), line)


def _in_colour(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m"

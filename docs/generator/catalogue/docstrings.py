"""The parts of an entry's module docstring: idea, paper, differences from the paper."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass

PARTS = {
    "Paper": "paper",
    "Papers": "paper",
    "Source": "paper",
    "Departs from the paper": "differences",
    "Departs from the notebook": "differences",
}
"""The part of the docstring that starts with each label."""


@dataclass(frozen=True)
class EntryDocstring:
    """The parts of a module docstring; a missing part is empty."""

    idea: str = ""
    paper: str = ""
    differences: str = ""


def parse_docstring(entry: type) -> EntryDocstring:
    """Return the parts of the docstring of the module that defines an entry."""
    text = inspect.getdoc(sys.modules.get(entry.__module__)) or inspect.getdoc(entry) or ""
    lines: dict[str, list[str]] = {"idea": []}
    part = "idea"
    for line in text.replace("``", "`").splitlines():
        label, colon, rest = line.partition(":")
        if colon and label in PARTS:
            part, line = PARTS[label], rest
        lines.setdefault(part, []).append(line.strip())
    return EntryDocstring(**{part: _joined_lines(text_lines) for part, text_lines in lines.items()})


def _joined_lines(lines: list[str]) -> str:
    """Join the lines of each paragraph."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())

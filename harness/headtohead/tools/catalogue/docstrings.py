"""The parts of an entry's module docstring: idea, paper, differences from the paper."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass

LABELS = ("Paper", "Papers", "Source", "Departs from the paper", "Departs from the notebook")
ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


@dataclass(frozen=True)
class About:
    """The parts of a module docstring; a missing part is empty."""

    idea: str
    paper: str
    departs: str


def about(entry: type) -> About:
    """Return the parts of the docstring of the module that defines an entry."""
    text = inspect.getdoc(sys.modules.get(entry.__module__)) or inspect.getdoc(entry) or ""
    parts: dict[str, list[str]] = {"idea": []}
    part = "idea"
    for line in text.replace("``", "`").splitlines():
        label = next((label for label in LABELS if line.startswith(f"{label}:")), None)
        if label is not None:
            part = label.split()[0]
            line = line.removeprefix(f"{label}:")
        parts.setdefault(part, []).append(line.strip())
    joined = {name: _flowing(lines) for name, lines in parts.items()}
    paper = joined.get("Paper") or joined.get("Papers") or joined.get("Source", "")
    return About(joined["idea"], paper, joined.get("Departs", ""))


def linked(text: str) -> str:
    """Return a text with each arXiv number as a link, in Markdown."""
    return ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def _flowing(lines: list[str]) -> str:
    """Join the lines of each paragraph."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())

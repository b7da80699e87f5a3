"""Reading and writing of a run's translations, and the seed that represents a variant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage.run import TRANSLATIONS
from headtohead.storage.run_directory import RunDirectory

if TYPE_CHECKING:
    from headtohead.storage.frames import Frames

COLUMNS = ("source", "references", "hypothesis", "exact")
_SEPARATOR = "|||"
"""Separates the references of a sentence in ``translations.tsv``."""


@dataclass(frozen=True)
class Translation:
    """A test sentence with its references and a run's translation."""

    source: str
    references: tuple[str, ...]
    hypothesis: str
    exact: bool


def read_translations(run: Path) -> list[Translation]:
    """Return the translations of a run directory; empty if there are none."""
    directory = RunDirectory(run)
    if not directory.has(TRANSLATIONS):
        return []
    path = directory.verified(TRANSLATIONS)
    lines = files.read_text(path, files.LARGE_BYTES).removesuffix("\n").split("\n")
    translations = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split("\t")
        if len(cells) != len(COLUMNS) or cells[3] not in ("0", "1"):
            expected = f"line {number}: expected {', '.join(COLUMNS)} (0 or 1), separated by tabs"
            raise HeadToHeadError(files.unreadable(path, expected))
        translations.append(
            Translation(cells[0], split_references(cells[1]), cells[2], cells[3] == "1")
        )
    return translations


def translations_text(translations: Iterable[Translation]) -> str:
    """Return the content of ``translations.tsv``, with white space in a cell reduced to single spaces."""
    lines = ["\t".join(COLUMNS)]
    for row in translations:
        cells = (row.source, joined_references(row.references), row.hypothesis, str(int(row.exact)))
        lines.append("\t".join(" ".join(cell.split()) for cell in cells))
    return "\n".join(lines) + "\n"


def joined_references(references: Iterable[str]) -> str:
    """Return references as one text; a backslash and the separator are escaped in each of them."""
    escaped = []
    for reference in references:
        escaped.append(reference.replace("\\", "\\\\").replace(_SEPARATOR, "\\p"))
    return f" {_SEPARATOR} ".join(escaped)


def split_references(joined: str) -> tuple[str, ...]:
    """Return the references that ``joined_references`` joined."""

    def unescaped(escape: re.Match[str]) -> str:
        return _SEPARATOR if escape[1] == "p" else escape[1]

    references = joined.split(f" {_SEPARATOR} ")
    return tuple(re.sub(r"\\(.)", unescaped, reference) for reference in references)


def translations_of(frames: Frames, slug: str, seed: int) -> list[Translation]:
    """Return the translations of a variant's run with this seed; empty if there are none."""
    rows = frames.rows(slug)
    names = rows.index[rows["seed"] == seed]
    if not len(names):
        return []
    return read_translations(frames.folders[str(names[0])])

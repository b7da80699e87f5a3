"""Reading of a run's translations, and the seed that represents a variant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headtohead.storage.frames import Frames
from headtohead.storage.records import TRANSLATIONS
from headtohead.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class Translation:
    """A test sentence with a run's translation; ``references`` are joined by `` ||| ``."""

    source: str
    references: str
    hypothesis: str
    exact: bool


def read_translations(run: Path) -> list[Translation]:
    """Return the translations of a run directory; empty if there are none.

    Raises:
        HeadToHeadError: If ``translations.tsv`` is damaged.
    """
    directory = RunDirectory(run)
    if not directory.has(TRANSLATIONS):
        return []
    rows = [line.split("\t") for line in directory.verified(TRANSLATIONS).read_text(encoding="utf-8").split("\n")[1:]]
    return [Translation(row[0], row[1], row[2], row[3] == "1") for row in rows if len(row) == 4]


def median_seed(frames: Frames, slug: str, metric: str) -> int | None:
    """Return the seed with the variant's median score (the lower median); None without scores."""
    scores = frames.scores(slug, metric)
    ordered = sorted(scores, key=lambda seed: (scores[seed], seed))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def translations_of(frames: Frames, slug: str, seed: int) -> list[Translation]:
    """Return the translations of a variant's run with this seed; empty if there are none."""
    rows = frames.rows(slug)
    names = rows.index[rows["seed"] == seed]
    return read_translations(frames.path(str(names[0]))) if len(names) else []

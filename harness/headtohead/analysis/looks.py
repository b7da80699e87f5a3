"""Sequential seeds: at which look a study is, and whether it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headtohead.analysis.contrasts import Contrast, incomplete, is_late
from headtohead.statistics.looks import Looks
from headtohead.statistics.paired_tests import ALPHA
from headtohead.statistics.verdicts import NO_VERDICT
from headtohead.storage.frames import Frames


@dataclass(frozen=True)
class LooksStatus:
    """The looks of a study.

    Attributes:
        looks: The planned looks.
        taken: The numbers of seeds at which the study was judged, without a look that has runs without a result.
        seeds: Number of seeds of the current look.
        complete: Whether every run of the current look has a result.
        undecided: Names of the main contrasts that more seeds can decide.
        unranked: Names of the main contrasts that have no test, for example because runs failed.
        late: Whether the looks were set or changed after results existed.
    """

    looks: Looks
    taken: tuple[int, ...]
    seeds: int
    complete: bool
    undecided: tuple[str, ...]
    unranked: tuple[str, ...]
    late: bool

    @property
    def level(self) -> float:
        """The level of a single test at each look."""
        return self.looks.level(ALPHA)

    @property
    def next(self) -> int | None:
        """The number of seeds of the next look, or None if the study ends at this look or the look has no end yet."""
        return self.looks.next(self.seeds) if self.complete and self.undecided else None


def looks_status(frames: Frames, contrasts: Sequence[Contrast]) -> LooksStatus | None:
    """Return the status of a study with sequential seeds, or None.

    ``contrasts`` are the main contrasts of the primary metric. Others, such as interactions, are not waited for.
    """
    record, looks = frames.record.looks, frames.looks
    if record is None or looks is None:
        return None
    complete = not incomplete(frames)
    return LooksStatus(
        looks=looks,
        taken=record.taken if complete else record.taken[:-1],
        seeds=len(frames.seeds),
        complete=complete,
        undecided=tuple(contrast.name for contrast in contrasts if contrast.is_undecided),
        unranked=tuple(
            contrast.name for contrast in contrasts if contrast.difference is None and contrast.verdict == NO_VERDICT
        ),
        late=is_late(frames, record),
    )

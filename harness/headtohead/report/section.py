"""A section of a report: a title, a sentence, a table and a figure; every output format renders the same sections."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat, zip_longest
from textwrap import wrap
from typing import Any

import pandas as pd

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.wording import ends, leveled
from headtohead.statistics.paired_tests import Difference, Summary
from headtohead.statistics.verdicts import BEYOND
from headtohead.storage.metrics import show, show_p

_NUMBER = re.compile(r"[+−±<∞]? ?\d.*|[–∞]?|.*diverged", re.DOTALL)


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: The heading.
        text: A sentence below the heading.
        frame: A table of texts. The first line of a cell is its value; further lines, such as an interval, are smaller.
        figure: Name of a figure, which is omitted if it is not drawn, with its ``caption``.
        lines: A list below the table.
        code: Commands or a file, preformatted.
        maps: Data of the interactive attention maps.
        shade: Background colour of the cells of ``frame`` in percent, by row.
        parts: Sections within this section.
    """

    title: str
    text: str = ""
    frame: pd.DataFrame | None = None
    figure: str = ""
    caption: str = ""
    lines: Sequence[str] = ()
    code: str = ""
    maps: Mapping[str, Any] | None = None
    shade: Sequence[Sequence[int]] = ()
    parts: Sequence[Section] = ()

    @property
    def anchor(self) -> str:
        """The heading as an identifier."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")

    @property
    def columns(self) -> list[str]:
        """The headings of the table."""
        return [] if self.frame is None else [*map(str, self.frame.columns)]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of the table."""
        return [] if self.frame is None else self.frame.to_numpy().tolist()

    @property
    def numeric(self) -> list[bool]:
        """Whether all cells of a column are numbers, which are right-aligned."""
        return [all(map(_NUMBER.fullmatch, cells)) for cells in zip(*self.rows, strict=True)]


class Bold(str):
    """A cell whose first line is bold in Markdown and LaTeX."""


def table(rows: Iterable[Mapping[str, str]]) -> pd.DataFrame | None:
    """Return a row per mapping with its names as columns, or None without rows; missing cells are empty."""
    frame = pd.DataFrame(list(rows), dtype=object)
    return None if frame.empty else frame.fillna("")


def text_lines(frame: pd.DataFrame | None, width: int = 80) -> Iterator[str]:
    """Yield a table of contrasts as lines of at most ``width`` characters, with the verdicts of a row as lines."""
    if frame is None:
        return
    left, number, *verdicts = frame.columns
    cells = [[cell.split("\n") for cell in row] for row in frame.to_numpy()]
    widest = max(len(words[0]) for row in cells for words in row[2:])
    rows = [([left], number, [", ".join(verdicts)])]
    for names, values, *tests in cells:
        rows.append(
            (
                names,
                values[0],
                [f"{word:{widest}}  {' '.join(rest)}".rstrip() for word, *rest in tests],
            )
        )
    numbers = max(len(value) for _, value, _ in rows)
    room = width - numbers - 4 - max(len(text) for _, _, texts in rows for text in texts)
    wrapped = [
        (wrap(name, max(room, 24), break_on_hyphens=False), *rest) for (name, *_), *rest in rows
    ]
    names_width = max(len(line) for lines, *_ in wrapped for line in lines)
    for (lines, value, texts), ((_, *notes), *_) in zip(wrapped, rows, strict=True):
        for line, shown, text in zip_longest(lines, [value], texts, fillvalue=""):
            yield f"{line:{names_width}}  {shown:>{numbers}}  {text}".rstrip()
        yield from (f"  {note}" for note in notes)


def with_interval(
    mean: float, low: float, high: float, metric: str, *, signed: bool = False, like: float = 0.0
) -> str:
    """Return a mean, and on a second line its interval if it is finite; ``like`` as in `show`."""
    text = show(mean, metric, signed=signed, like=like)
    return (
        f"{text}\n{ends(low, high, metric, signed=signed, like=like)}"
        if math.isfinite(low)
        else text
    )


def score(summary: Summary, metric: str) -> str:
    """Return a mean over seeds with its interval."""
    return with_interval(summary.mean, summary.low, summary.high, metric)


def difference(paired: Difference | None, metric: str, like: float = 0.0) -> str:
    """Return a difference with its 95 % interval."""
    return (
        with_interval(paired.mean, paired.low, paired.high, metric, signed=True, like=like)
        if paired
        else "–"
    )


def replaced(contrasts: Iterable[Contrast]) -> str:
    """Return a sentence on contrasts with the tests of another family; empty without any."""
    kinds = dict.fromkeys(own.judged_as for own in contrasts if own.judged_as not in ("", own.kind))
    text = " A difference that is also a {} contrast has the p-value and verdict of that contrast."
    return "".join(map(text.format, kinds))


def contrast_table(
    contrasts: Sequence[Contrast],
    first: Iterable[Mapping[str, str]],
    last: Iterable[Mapping[str, str]] = repeat({}),
) -> pd.DataFrame | None:
    """Return the tests of contrasts: difference, intervals of direction and size, verdict, p-values, effect size.

    Each row starts with its cells of ``first`` and ends with those of ``last``.
    """
    has_margin = any(contrast.judgement.size_test for contrast in contrasts)
    rows = []
    for contrast, before, after in zip(contrasts, first, last, strict=False):
        paired, judgement, test = contrast.paired, contrast.judgement, contrast.judgement.size_test
        late = "\nmargin set after results existed" * contrast.late_margin
        within_p = f"\nTOST p {show_p(test.holm_p)}" if test and contrast.size != BEYOND else ""
        size = f"{leveled(test.interval, contrast)}{within_p}{late}" if test else "–"
        rows.append(
            {
                **before,
                "difference": contrast.difference_text,
                "interval of the direction": leveled(judgement.interval, contrast),
                **({"interval of the size": size} if has_margin else {}),
                "verdict": "\n".join(filter(None, [contrast.verdict, contrast.reason])),
                "Holm p": show_p(judgement.holm_p),
                "paired t p": show_p(paired.paired_p if paired else None),
                "sign-flip p": show_p(paired.sign_flip_p if paired else None),
                "effect": show(paired.effect if paired else None, "effect", signed=True, digits=-2),
                **after,
            }
        )
    return table(rows)

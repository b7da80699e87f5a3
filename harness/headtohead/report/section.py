"""A section of a report: a title, a sentence, a table and a figure; every output format renders the same sections."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat, zip_longest
from textwrap import wrap
from typing import Any, NamedTuple

import pandas as pd

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.wording import ends, interval_text, possible
from headtohead.report.chart_parts import Chart
from headtohead.storage.contrasts import FAMILIES_IN_WORDS
from headtohead.storage.metrics import show, show_p
from headtohead_judge.paired_tests import Summary

_NUMBER = re.compile(r"[+−±<∞]? ?\d.*|[–∞]?|.*diverged", re.DOTALL)

UNTITLED = "Differences, one point per seed"
"""The title of the figure of a section without a title, which is that below the answer."""

VERDICT_WIDTH = 32
"""Maximum width of a verdict in a table for the terminal; longer texts are wrapped."""

MIN_NAME_WIDTH = 24
"""Minimum width of the names of contrasts in the terminal, in characters."""


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: The heading.
        hint: What a folded section holds, beside its heading.
        text: A sentence below the heading.
        frame: A table of texts. The first line of a cell is its value; further lines, such as an interval, are smaller.
        figure: Name of a figure, which is omitted if it is not drawn, with its ``caption``.
        lines: A list below the table.
        code: Commands or a file, preformatted.
        maps: Data of the interactive attention maps.
        shade: Background colour of the cells of ``frame`` in percent, by row.
        parts: Sections within this section.
        chart: The main contrasts as a figure with text, which a page has instead of ``frame`` and ``figure``.
    """

    title: str
    text: str = ""
    hint: str = ""
    frame: pd.DataFrame | None = None
    figure: str = ""
    caption: str = ""
    lines: Sequence[str] = ()
    code: str = ""
    maps: Mapping[str, Any] | None = None
    shade: Sequence[Sequence[int]] = ()
    parts: Sequence[Section] = ()
    chart: Chart | None = None

    @property
    def with_figure(self) -> Iterator[Section]:
        """This section and those within it, if they have a figure."""
        if self.figure:
            yield self
        for part in self.parts:
            yield from part.with_figure

    @property
    def figure_title(self) -> str:
        """The title of the figure."""
        return self.title or UNTITLED

    @property
    def anchor(self) -> str:
        """The heading as an identifier."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")

    @property
    def columns(self) -> list[str]:
        """The headings of the table."""
        if self.frame is None:
            return []
        return list(map(str, self.frame.columns))

    @property
    def is_contrasts(self) -> bool:
        """Whether the rows of the table are contrasts with their verdicts, which a phone shows as cards."""
        return self.columns[:3] == ["contrast", "difference", "verdict"]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of the table."""
        if self.frame is None:
            return []
        return self.frame.to_numpy().tolist()

    @property
    def numeric(self) -> list[bool]:
        """Whether all cells of a column are numbers, which are right-aligned."""
        columns = zip(*self.rows, strict=True)
        return [all(map(_NUMBER.fullmatch, cells)) for cells in columns]


class Bold(str):
    """A cell whose first line is bold in Markdown and LaTeX."""


def table(rows: Iterable[Mapping[str, str]]) -> pd.DataFrame | None:
    """Return a row per mapping with its names as columns, or None without rows; missing cells are empty."""
    frame = pd.DataFrame(list(rows), dtype=object)
    if frame.empty:
        return None
    return frame.fillna("")


class _TextRow(NamedTuple):
    """A row of a table of contrasts in the terminal: name, number, lines of the verdict, notes below."""

    name: str
    number: str
    verdict: list[str]
    notes: list[str]


def text_lines(frame: pd.DataFrame | None, width: int = 80) -> Iterator[str]:
    """Yield a table of contrasts as lines for the terminal: names, numbers and verdicts side by side, notes below.

    Names are wrapped, but never below ``MIN_NAME_WIDTH`` characters; a line can then be wider than ``width``. The
    interval, p and the number of seeds stand below the verdict. No lines without a table.

    Args:
        frame: A table with at least one row and the columns of `differences.differences`. None for no table.
        width: Width of the terminal in characters.
    """
    if frame is None:
        return
    rows = _text_rows(frame)
    number_width = max(len(row.number) for row in rows)
    verdict_width = max(len(line) for row in rows for line in row.verdict)
    room = max(width - number_width - verdict_width - 4, MIN_NAME_WIDTH)
    names = [wrap(row.name, room, break_on_hyphens=False) for row in rows]
    name_width = max(len(line) for lines in names for line in lines)
    for row, lines in zip(rows, names, strict=True):
        for name, number, verdict in zip_longest(lines, [row.number], row.verdict, fillvalue=""):
            yield f"{name:{name_width}}  {number:>{number_width}}  {verdict}".rstrip()
        for note in row.notes:
            yield f"  {note}"


def _text_rows(frame: pd.DataFrame) -> list[_TextRow]:
    """Return the headings of a table of contrasts as the first row, then its rows.

    The first line of a name or a number is its value; further lines of a name are notes, those of a number are the
    interval. A row without p has a name alone.

    Args:
        frame: A table with the columns of `differences.differences`.
    """
    rows = [_TextRow("contrast", "difference", ["verdict, interval, p, seeds"], [])]
    for cells in frame.to_dict("records"):
        name, *notes = cells["contrast"].split("\n")
        number, *interval = cells["difference"].split("\n")
        verdict = []
        for line in cells["verdict"].split("\n"):
            verdict += wrap(line, VERDICT_WIDTH)
        numbers = [*interval]
        if cells["p"]:
            numbers.append(f"p {cells['p']}")
            numbers.append(f"{cells['seeds']} seeds")
        rows.append(_TextRow(name, number, [*verdict, ", ".join(numbers)], notes))
    return rows


def with_interval(
    mean: float, low: float, high: float, metric: str, *, signed: bool = False, like: float = 0.0
) -> str:
    """Return a mean, and on a second line its interval if it is finite; ``like`` as in `show`."""
    text = show(mean, metric, signed=signed, like=like)
    if not math.isfinite(low):
        return text
    return f"{text}\n{ends(low, high, metric, signed=signed, like=like)}"


def score(summary: Summary, metric: str) -> str:
    """Return a mean over seeds, and on a second line its interval; with fewer than two seeds the mean alone."""
    return with_interval(summary.mean, summary.low, summary.high, metric)


JUDGED_AS = (
    " A difference that is also one of the {kind} has the same interval and verdict in both places."
)


def replaced(contrasts: Iterable[ContrastResult]) -> str:
    """Return a sentence on contrasts that are judged with another family; empty without any."""
    kinds = []
    for contrast in contrasts:
        kind = contrast.judged_as
        if kind and kind != contrast.family and kind not in kinds:
            kinds.append(kind)
    return "".join(JUDGED_AS.format(kind=FAMILIES_IN_WORDS[kind]) for kind in kinds)


def contrast_table(
    contrasts: Sequence[ContrastResult],
    first: Iterable[Mapping[str, str]],
    last: Iterable[Mapping[str, str]] = repeat({}),
) -> pd.DataFrame | None:
    """Return a row per contrast: difference with its interval, verdict, adjusted p and number of seeds.

    None without contrasts. Without a test, difference, p and number of seeds are dashes. The reason for a missing test,
    or the notes on the verdict, are below the verdict.

    Args:
        contrasts: The contrasts.
        first: Further cells of each row by column, before the tests. As long as ``contrasts`` or infinite: contrasts
            beyond the shorter of ``first`` and ``last`` have no row.
        last: Like ``first``, after the tests.
    """
    rows = []
    for contrast, before, after in zip(contrasts, first, last, strict=False):
        row = {**before, **judged_cells(contrast)}
        if contrast.reason:
            row["verdict"] += f"\n{contrast.reason}"
        rows.append(row | dict(after))
    frame = table(rows)
    return None if frame is None else frame.rename(columns=COLUMN_NAMES)


COLUMN_NAMES = {"p": "adjusted p"}
"""Headings of the columns of `judged_cells` in a report, where they differ."""


def percent(fraction: float) -> str:
    """Return a fraction in whole percent; everything below 0.5 %, also 0, is ``< 1 %``."""
    return f"{100 * fraction:.0f} %" if fraction >= 0.005 else "< 1 %"


def judged_cells(contrast: ContrastResult) -> dict[str, str]:
    """Return the difference of a contrast with its interval, the verdict, the adjusted p and the number of seeds.

    The interval, the largest possible difference and a note on a late margin have lines of their own, where they exist.
    Without a test, difference, p and number of seeds are dashes.
    """
    difference = contrast.difference_text
    if interval_text(contrast):
        difference += f"\n{interval_text(contrast)}"
    return {
        "difference": difference,
        "verdict": "\n".join(verdict_lines(contrast)),
        "p": show_p(contrast.judgement.adjusted_p),
        "seeds": str(len(contrast.seeds)) if contrast.seeds else "–",
    }


POSSIBLE = "could be {possible}"
LATE_MARGIN = "margin set after results existed"


def verdict_lines(contrast: ContrastResult) -> list[str]:
    """Return the verdict, the largest possible difference if none is shown, and a note on a late margin."""
    lines = [contrast.verdict]
    if possible(contrast):
        lines.append(POSSIBLE.format(possible=possible(contrast)))
    if contrast.late_margin and contrast.judgement.margin:
        lines.append(LATE_MARGIN)
    return lines

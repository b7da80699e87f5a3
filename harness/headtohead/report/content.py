"""What the sections of a report share; everything is computed at first use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headtohead.analysis.contrasts import loss_mismatch
from headtohead.analysis.study import Analysis
from headtohead.report.answer import answer
from headtohead.report.blocks import TableCell, VariantTitle
from headtohead.report.cells import blank, score_cell
from headtohead.report.facts import facts
from headtohead.report.figures.palette import Palette
from headtohead.report.gallery import Gallery, gallery
from headtohead.report.parts import parts
from headtohead.storage import metrics

MOST_ROWS = 200
"""Variants or runs that a table lists; results.csv has all."""


@dataclass(frozen=True)
class ReportContent:
    """The analysis of an experiment with what several sections take from it.

    ``source`` says where the run directories came from, if not from the runs folder itself.
    """

    analysis: Analysis
    source: str | None = None

    @cached_property
    def experiment(self) -> Mapping[str, Any]:
        """The experiment's own record."""
        return self.analysis.frames.experiment

    @cached_property
    def answer(self) -> str:
        """The answer in one sentence."""
        return answer(self.analysis)

    @cached_property
    def palette(self) -> Palette:
        """Colours of the figures."""
        return Palette(self.analysis.frames)

    @cached_property
    def metric(self) -> str:
        """The primary metric in words."""
        return metrics.readable(self.analysis.metric)

    @cached_property
    def banner(self) -> str | None:
        """A warning that variants are incomplete."""
        missing = self.analysis.incomplete
        if not missing:
            return None
        states = self.analysis.frames.runs["state"]
        final = int(states.isin(["DONE", "DIVERGED"]).sum())
        total = len(states)
        count = f"{len(missing)} of {len(self.analysis.frames.variants)} variants are incomplete"
        if self.analysis.allow_partial:
            return (
                f"Partial: {count} ({final} of {total} runs have a result). They are ranked on "
                f"the seeds that finished, because --allow-partial was given; what finished "
                f"first is not a random sample."
            )
        return (
            f"Incomplete: {count} ({final} of {total} runs have a result). They are listed but "
            f"not ranked; run the experiment again to finish them, or pass --allow-partial."
        )

    @cached_property
    def axes_judged(self) -> bool:
        """Whether the answer is about axes rather than single variants."""
        return any(contrast.paired is not None for contrast in self.analysis.factors.contrasts)

    @cached_property
    def facts(self) -> list[str]:
        """What a reader should know beside the answer, one sentence each."""
        return facts(self.analysis)

    @cached_property
    def listed(self) -> list[str]:
        """The variants that tables list: all, or the best and the baseline; a path's ends."""
        if self.analysis.path:
            return [self.analysis.path.start, self.analysis.path.end]
        slugs = list(self.analysis.order)
        baseline = self.analysis.frames.baseline
        kept = slugs[:MOST_ROWS]
        return kept if baseline in kept or baseline not in slugs else [*kept[:-1], baseline]

    @cached_property
    def unlisted(self) -> int:
        """How many variants the tables leave out."""
        return len(self.analysis.order) - len(self.listed)

    def score(self, slug: str, metric: str) -> TableCell:
        """Return a variant's mean of any metric, blank with the reason where it would mislead."""
        reason = self.analysis.withheld.get(slug) or loss_mismatch(
            self.analysis.frames, slug, self.analysis.frames.baseline, metric
        )
        if reason:
            return blank(reason)
        return score_cell(self.analysis.frames.summary(slug, metric), metric)

    @cached_property
    def gallery(self) -> Gallery | None:
        """Attention maps, or None where none were recorded."""
        return gallery(self.analysis)

    @cached_property
    def parts(self) -> dict[str, str]:
        """What figures and sections of a large study leave out, by name."""
        return parts(self.analysis)

    def title(self, slug: str, *, coloured: bool = True) -> VariantTitle:
        """Return a variant's title, with its colour in the figures."""
        colour = self.palette.colour(slug) if coloured else None
        return VariantTitle(str(self.analysis.frames.variants[slug]["title"]), colour)

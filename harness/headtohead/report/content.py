"""The shared content of a report's sections, computed on first use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headtohead.analysis.scores import loss_mismatch
from headtohead.analysis.study import Analysis
from headtohead.report.answer import answer
from headtohead.report.blocks import TableCell, VariantTitle
from headtohead.report.cells import blank, score_cell
from headtohead.report.convergence import still_learning_line
from headtohead.report.facts import facts, other_test_line, pitfall_line, warnings
from headtohead.report.figures.palette import Palette
from headtohead.report.gallery import Gallery, gallery
from headtohead.report.looks import looks_caution
from headtohead.report.omissions import omissions
from headtohead.report.reference_points import neighbour_line
from headtohead.storage import metrics, states
from headtohead.storage.experiment import ExperimentDirectory, ExperimentRecord
from headtohead.storage.staleness import stale_changes

MOST_ROWS = 200
"""Maximum number of variants or runs in a table; results.csv contains all."""


@dataclass(frozen=True)
class ReportContent:
    """The analysis of an experiment with derived texts and selections.

    ``source`` is the origin of the run directories if it is not the runs folder, ``file`` the experiment file if it is
    known.
    """

    analysis: Analysis
    source: str | None = None
    file: Path | None = None

    @cached_property
    def record(self) -> ExperimentRecord:
        """The experiment's record."""
        return self.analysis.frames.record

    @cached_property
    def answer(self) -> str:
        """The answer to the experiment's question; a STALE answer begins with what has changed since the runs."""
        text = answer(self.analysis)
        return f"STALE ({'; '.join(self.stale)}): {text}" if self.stale else text

    @cached_property
    def stale(self) -> tuple[str, ...]:
        """What has changed in the experiment file and in plugins since the runs were trained."""
        return stale_changes(ExperimentDirectory(self.analysis.frames.directory, self.record), self.file)

    @cached_property
    def cautions(self) -> tuple[str, ...]:
        """Short sentences that limit what the answer shows, printed beside it."""
        written = (other_test_line, neighbour_line, still_learning_line, looks_caution, pitfall_line)
        lines = [line(self.analysis) for line in written]
        return (*self.warnings, *filter(None, lines))

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences that question the results."""
        return warnings(self.analysis)

    @cached_property
    def palette(self) -> Palette:
        """The colours of the variants in figures."""
        return Palette(self.analysis.frames)

    @cached_property
    def metric(self) -> str:
        """The display name of the primary metric."""
        return metrics.readable(self.analysis.metric)

    @cached_property
    def banner(self) -> str | None:
        """A warning if variants are incomplete, else None."""
        missing = self.analysis.incomplete
        if not missing:
            return None
        run_states = self.analysis.frames.runs["state"]
        final = int(run_states.isin(states.RESULTS).sum())
        total = len(run_states)
        have = "has" if len(missing) == 1 else "have"
        count = f"{len(missing)} of {len(self.analysis.frames.by_slug)} variants {have} missing runs"
        if self.analysis.allow_partial:
            return (
                f"Partial: {count} ({final} of {total} runs have a result). With --allow-partial, such variants are "
                f"ranked on their finished seeds, which are not a random sample of the seeds."
            )
        return (
            f"Incomplete: {count} ({final} of {total} runs have a result). Variants with missing runs are "
            f"listed but not ranked; run the experiment again to finish them, or pass --allow-partial."
        )

    @cached_property
    def answers_factors(self) -> bool:
        """Whether the answer is about factor contrasts rather than single variants."""
        factors, declared = self.analysis.factors.contrasts, self.analysis.declared.contrasts
        return not declared and any(contrast.paired is not None for contrast in factors)

    @cached_property
    def facts(self) -> list[str]:
        """Facts that qualify the answer, a sentence each."""
        return facts(self.analysis)

    @cached_property
    def listed(self) -> list[str]:
        """The variants in tables: all, or the best and the baseline."""
        slugs = list(self.analysis.order)
        baseline = self.analysis.frames.baseline
        best = slugs[:MOST_ROWS]
        return best if baseline in best or baseline not in slugs else [*best[:-1], baseline]

    @cached_property
    def num_unlisted(self) -> int:
        """The number of variants that tables omit."""
        return len(self.analysis.order) - len(self.listed)

    def score(self, slug: str, metric: str) -> TableCell:
        """Return a variant's mean of a metric, or a blank cell with the reason if it is not comparable."""
        reason = self.analysis.withheld.get(slug) or loss_mismatch(
            self.analysis.frames, slug, self.analysis.frames.baseline, metric
        )
        if reason:
            return blank(reason)
        return score_cell(self.analysis.frames.summary(slug, metric), metric)

    @cached_property
    def gallery(self) -> Gallery | None:
        """The attention maps, or None if none were recorded."""
        return gallery(self.analysis)

    @cached_property
    def omissions(self) -> dict[str, str]:
        """Sentences on the variants that figures and sections of a large study omit, by name."""
        return omissions(self.analysis)

    def title(self, slug: str, *, coloured: bool = True) -> VariantTitle:
        """Return a variant's title, with its colour in the figures."""
        colour = self.palette.colour(slug) if coloured and self.palette.is_coloured else None
        return VariantTitle(self.analysis.frames.by_slug[slug].title, colour)

"""``Report``: the analysis, the answer, the remarks and the colours of a report, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headtohead.analysis.findings import rules
from headtohead.analysis.findings.finding import Finding
from headtohead.analysis.size_prediction import SizePredictions, size_predictions
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import interval_caption
from headtohead.figures.colours import css_colour
from headtohead.report.answer import MAX_SENTENCES, answer
from headtohead.report.attention import Gallery, gallery
from headtohead.report.differences import differences
from headtohead.report.section import Section, table
from headtohead.storage.experiment import ExperimentDirectory, ExperimentRecord
from headtohead.storage.metrics import counted, readable, stored, unpadded
from headtohead.storage.palette import Palette
from headtohead.storage.staleness import stale_changes

MAX_ROWS = 200
"""Maximum number of variants or runs in a table; results.csv contains all."""

MAX_WARNINGS = 2
"""Maximum number of warnings below the answer; the others are among the details, with the cautions."""

STALE = "STALE ({changes}): {answer}"
LIMITS = "What limits this answer: {limits}."
INCOMPLETE = (
    "Incomplete: {missing} of {variants} variants lack runs ({finished} of {runs} runs have a result). They are not "
    "ranked; run the experiment again, or pass --allow-partial."
)
PARTIAL = (
    "Partial: {missing} of {variants} variants lack runs ({finished} of {runs} runs have a result). They are ranked on "
    "their finished seeds, which are not a random sample of the seeds."
)


@dataclass(frozen=True)
class Report:
    """The analysis of an experiment with derived texts and selections.

    Its file is None if it is not known; the answer has at most ``max_sentences`` sentences about single contrasts.

    Its properties, and the functions that build a part of a page from it, raise a `HeadToHeadError` if a file of the
    study that they read is damaged, as `Analysis` describes.
    """

    analysis: Analysis
    file: Path | None = None
    max_sentences: int = MAX_SENTENCES

    @property
    def record(self) -> ExperimentRecord:
        """The experiment's record."""
        return self.analysis.frames.record

    @property
    def metric(self) -> str:
        """The readable name of the primary metric."""
        return readable(self.analysis.metric)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of the answer; those of a STALE answer begin with what has changed since the runs."""
        sentences = answer(self.analysis, self.max_sentences)
        if not self.stale:
            return sentences
        first, *others = sentences
        return (STALE.format(changes="; ".join(self.stale), answer=first), *others)

    @property
    def answer(self) -> str:
        """The answer to the experiment's question as plain text."""
        return " ".join(self.sentences)

    @property
    def limits(self) -> str:
        """What limits the answer, in a line; empty if nothing is known to."""
        clauses = rules.limits(self.remarks)
        return LIMITS.format(limits="; ".join(clauses)) if clauses else ""

    @cached_property
    def differences(self) -> Section:
        """The main contrasts, largest difference first; without a table if there are none."""
        rows = differences(self.analysis)
        if not rows:
            return Section("")
        caption = interval_caption(self.analysis, self.analysis.main_contrasts)
        return Section("", caption, frame=table(rows))

    @cached_property
    def size_predictions(self) -> SizePredictions | None:
        """The effects at the largest size beside their predictions from the smaller ones, or None."""
        return size_predictions(self.analysis)

    @cached_property
    def stale(self) -> tuple[str, ...]:
        """The changes of the experiment file and of plugins since the runs were trained."""
        directory = ExperimentDirectory(self.analysis.frames.directory, self.record)
        return stale_changes(directory, self.file)

    @cached_property
    def remarks(self) -> tuple[Finding, ...]:
        """The findings that qualify the answer, the most severe first; computing them reads files of the study."""
        return rules.find(self.analysis)

    @property
    def cautions(self) -> list[Finding]:
        """The remarks beside the answer: warnings and cautions."""
        return [remark for remark in self.remarks if remark.severity != "note"]

    @property
    def first_warnings(self) -> list[Finding]:
        """The warnings below the answer; what cautions mean for the answer is in `limits`."""
        return [remark for remark in self.cautions if remark.severity == "warning"][:MAX_WARNINGS]

    @property
    def further_cautions(self) -> list[Finding]:
        """The warnings and cautions among the details."""
        first = self.first_warnings
        return [remark for remark in self.cautions if remark not in first]

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict on each variant with a contrast against the baseline, by slug; ``baseline`` for the baseline."""
        contrasts = self.analysis.families.variants.contrasts
        verdicts = {contrast.variant: contrast.verdict for contrast in contrasts}
        return verdicts | {self.analysis.frames.baseline: "baseline"}

    @property
    def notes(self) -> list[str]:
        """The remarks below the answer, which describe the study."""
        return [remark.text for remark in self.remarks if remark.severity == "note"]

    @property
    def banner(self) -> str | None:
        """A warning if seeds of some variants have no result, also failed ones; else None.

        It has the number of these variants and of all variants, and the number of runs with a result and of all runs.
        With ``allow_partial`` it says that these variants are ranked, else that they are not.
        """
        incomplete = self.analysis.incomplete
        if not incomplete:
            return None
        frames = self.analysis.frames
        template = PARTIAL if self.analysis.allow_partial else INCOMPLETE
        return template.format(
            missing=len(incomplete),
            variants=len(frames.by_slug),
            finished=frames.has_result.sum(),
            runs=len(frames.runs),
        )

    @cached_property
    def listed(self) -> list[str]:
        """The variants in tables: all, or the best and the baseline."""
        return self.analysis.leading(MAX_ROWS)

    @property
    def has_unpadded(self) -> bool:
        """Whether scores without padding were evaluated and can differ: some mask does not hide padding."""
        frames = self.analysis.frames
        if unpadded(stored(self.analysis.metric)) not in frames.runs:
            return False
        return not all(frames.by_slug[slug].padding_hidden for slug in self.listed)

    @cached_property
    def colours(self) -> dict[str, str]:
        """The colour of each variant in the figures, by title; empty if there are more values than colours."""
        palette = Palette(self.record)
        if not palette.is_coloured:
            return {}
        colours = {}
        for slug, variant in self.analysis.frames.by_slug.items():
            colours[variant.title] = css_colour(palette.colour(slug))
        return colours

    @cached_property
    def gallery(self) -> Gallery | None:
        """The attention maps, or None if none were recorded."""
        return gallery(self.analysis)

    @property
    def footer(self) -> str:
        """How many runs the report is from."""
        runs = counted(len(self.analysis.frames.runs), "run")
        return f"Written by headtohead from {runs}; experiment planned {self.record.created}."

    def shown(self, most: int) -> str:
        """Return a sentence on a figure that draws at most this many variants; empty if these are all."""
        total = len(self.analysis.order)
        if most >= total:
            return ""
        return f" {most} of {total} variants: the best and the baseline."

    def title(self, slug: str) -> str:
        """Return a variant's title."""
        return self.analysis.frames.by_slug[slug].title

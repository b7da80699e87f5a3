"""The sections of a report in print order: functions that return a section, or None for a study without its subject."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from headtohead.analysis.sentences import margin_note
from headtohead.analysis.wording import interval_caption
from headtohead.report.attention import caption, payload
from headtohead.report.chart import contrast_chart
from headtohead.report.content import Report
from headtohead.report.contrasts import (
    FAMILIES,
    expected_section,
    factor_section,
    family_section,
    two_way_section,
    uncertainty_section,
)
from headtohead.report.data import (
    data_section,
    length_section,
    reference_section,
    translation_section,
)
from headtohead.report.differences import shown_contrasts
from headtohead.report.section import COLUMN_NAMES, Section
from headtohead.report.setup import (
    other_tests_section,
    reproduction_section,
    runs_section,
    setup_section,
    statistics_section,
    tuning_section,
)
from headtohead.report.sizes import prediction_section, transfer_section
from headtohead.report.training import training_section
from headtohead.report.variants import (
    collapse_section,
    padding_section,
    pitfall_section,
    score_section,
)
from headtohead.storage.metrics import show

POINTS = (
    "Each point is the difference in one seed{average}. The bar is the interval, the tick the mean."
)
AVERAGE = ", averaged over all pairs of variants that differ only in this change"
ZERO = " At 0, both variants have the same score. Baseline: {baseline}{score}."
SCORE = " ({metric} {mean})"
MAGNIFIED = " The second panel zooms in; an arrow points to a difference outside of it."


def opening_section(report: Report) -> Section:
    """Return the figure of the main contrasts with its caption, and the table that Markdown has below it.

    The caption explains points, interval, panels and margin, and names the baseline. If the baseline is ranked, its
    mean without collapsed runs follows. The last sentence has the sources of variance (`interval_caption`). The section
    is empty without `shown_contrasts`.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    analysis = report.analysis
    chart = contrast_chart(analysis)
    if chart is None:
        return Section("")
    contrasts = shown_contrasts(analysis)
    is_averaged = any(len(contrast.contrast.settings) > 1 for contrast in contrasts)
    text = POINTS.format(average=AVERAGE if is_averaged else "")
    baseline = analysis.frames.baseline
    score = ""
    if baseline in analysis.ranked:
        mean = show(analysis.healthy_summary(baseline, analysis.metric).mean, analysis.metric)
        score = SCORE.format(metric=report.metric, mean=mean)
    text += ZERO.format(baseline=report.title(baseline), score=score)
    if chart.is_magnified:
        text += MAGNIFIED
    text += margin_note(contrasts)
    text += f" {interval_caption(analysis, contrasts)}"
    frame = report.differences.frame
    assert frame is not None  # contrasts are shown, since there is a chart
    return Section(
        "",
        figure="contrasts",
        caption=text.strip(),
        frame=frame.rename(columns=COLUMN_NAMES),
        chart=chart,
    )


def note_section(report: Report) -> Section | None:
    """Return the remarks that are not beside the answer, first cautions, then notes; None without any.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    lines = [remark.text for remark in report.further_cautions]
    lines += report.notes
    if not lines:
        return None
    return Section("Notes", hint="on data, training and statistics", lines=lines)


MAPS = (
    "The same sentence, layer and head of every variant; layers and heads are numbered from 0. Heads with the same "
    "index can have different functions in different models. In index.html, other heads can be chosen; the entropy of "
    "a head is in nats and its distance in tokens."
)
OMITTED_MAPS = "The maps of {number} more variants are in the run directories."


def attention_section(report: Report) -> Section | None:
    """Return the section of the attention maps, for a figure and for the page's script; None without recorded maps.

    Raises:
        HeadToHeadError: If recorded maps cannot be read or have changed since they were written.
    """
    gallery = report.gallery
    if gallery is None:
        return None
    sentences = [MAPS]
    if gallery.num_omitted:
        sentences.append(OMITTED_MAPS.format(number=gallery.num_omitted))
    sentences += gallery.notes
    return Section(
        "Attention maps",
        " ".join(sentences),
        hint="the same head of every variant",
        figure="attention",
        caption=caption(gallery),
        maps=payload(gallery),
    )


HEADS_CAPTION = "Right of 0: the model needs the head. Each point is a head of a seed."
HEADS = (
    "The change of the baseline's test loss when a head is masked, and when all other heads of its layer are, for "
    "every head of every seed with a head ablation. Layers and heads are numbered from 0."
)


def head_section(report: Report) -> Section:
    """Return the figure of the head ablation, which is drawn for a baseline that has one."""
    return Section("Heads", HEADS, figure="heads", caption=HEADS_CAPTION)


TABLES: tuple[Callable[[Report], Section | None], ...] = (
    two_way_section,
    *(partial(family_section, family=family) for family in FAMILIES),
)
"""The sections below the figure: the tables of contrasts."""

DETAILS: tuple[Callable[[Report], Section | None], ...] = (
    note_section,
    score_section,
    factor_section,
    expected_section,
    transfer_section,
    prediction_section,
    training_section,
    length_section,
    attention_section,
    head_section,
    translation_section,
    reference_section,
    collapse_section,
    padding_section,
    pitfall_section,
    uncertainty_section,
    statistics_section,
    other_tests_section,
    tuning_section,
    runs_section,
    data_section,
    setup_section,
    reproduction_section,
)
"""The folded sections."""


class ReportSections(NamedTuple):
    """The sections of a report in print order.

    Attributes:
        opening: The figure below the answer, without a title.
        tables: The tables of contrasts.
        details: The sections that a page folds.
    """

    opening: Section
    tables: list[Section]
    details: list[Section]

    @property
    def by_figure(self) -> dict[str, Section]:
        """The sections with a figure, by its name."""
        sections = {}
        for section in (self.opening, *self.tables, *self.details):
            for shown in section.with_figure:
                sections[shown.figure] = shown
        return sections


def report_sections(report: Report, figures: Collection[str] = ()) -> ReportSections:
    """Return the sections with content; the opening is returned without content, too.

    Args:
        report: The report.
        figures: The names of the drawn figures. A section with nothing but a figure is left out without it.

    Raises:
        HeadToHeadError: If a file of the study is damaged, such as the stored values per example of a run.
    """
    return ReportSections(
        opening_section(report),
        _with_content(report, TABLES, figures),
        _with_content(report, DETAILS, figures),
    )


def _with_content(
    report: Report,
    makers: Sequence[Callable[[Report], Section | None]],
    figures: Collection[str],
) -> list[Section]:
    """Return the sections that have a content."""
    sections = []
    for make in makers:
        section = make(report)
        if section is not None and _has_content(section, figures):
            sections.append(section)
    return sections


def _has_content(section: Section, figures: Collection[str]) -> bool:
    """Return whether a section is printed: text beside a figure that is not drawn is no content."""
    if section.frame is not None or section.figure in figures:
        return True
    if section.lines or section.code or section.parts:
        return True
    return bool(section.text) and not section.figure

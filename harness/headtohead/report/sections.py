"""The sections of a report in print order: functions that return a section, or None for a study without its subject."""

from __future__ import annotations

from collections.abc import Callable, Collection

from headtohead.figures.rows import magnified_range
from headtohead.report.attention import payload
from headtohead.report.content import Report
from headtohead.report.contrasts import (
    change_section,
    declared_section,
    factor_section,
    transfer_section,
    two_way_section,
    uncertainty_section,
)
from headtohead.report.data import (
    data_section,
    length_section,
    reference_section,
    translation_section,
)
from headtohead.report.figures.rows import forest_rows
from headtohead.report.section import Section
from headtohead.report.setup import (
    other_tests_section,
    reproduction_section,
    runs_section,
    setup_section,
    statistics_section,
    tuning_section,
)
from headtohead.report.training import training_section
from headtohead.report.variants import (
    collapse_section,
    padding_section,
    pitfall_section,
    variant_section,
)

POINTS = "Every point is a seed; the bar is the interval. Grey bars contain 0."
AVERAGED_POINTS = "Every point is a seed, averaged over the other axes; the bar is the interval. Grey bars contain 0."
TRIANGLES = " Triangles: seeds outside the range of the magnified panel."
LARGEST = " The {rows} largest differences."
OTHER_METRICS = " Contrasts in other metrics are in the table."


def opening_section(report: Report) -> Section:
    """Return the figure of the main contrasts with its caption, and the notes on the study.

    The caption says if seeds are averaged over settings, if a magnified panel leaves out seeds, and if contrasts are
    left out: those in other metrics, and all but the largest.

    Raises:
        HeadToHeadError: As `Report`.
    """
    contrasts = report.analysis.main_contrasts
    rows = forest_rows(report.analysis)
    tested = [contrast for contrast in contrasts if contrast.paired is not None]
    in_metric = [contrast for contrast in tested if contrast.metric == report.analysis.metric]
    is_averaged = any(contrast.family == "factor" for contrast in contrasts)
    caption = AVERAGED_POINTS if is_averaged else POINTS
    if magnified_range(rows):
        caption += TRIANGLES
    if len(rows) < len(in_metric):
        caption += LARGEST.format(rows=len(rows))
    if len(in_metric) < len(tested):
        caption += OTHER_METRICS
    return Section("", figure="contrasts", caption=caption, lines=report.notes)


MAPS = (
    "The same sentence, layer and head of every variant; layers and heads are numbered from 0. Rows are queries, "
    "columns keys; full colour is a weight of 1. Heads with the same index can have different functions in different "
    "models. In index.html, the entropy of a head is in nats and its distance in tokens."
)
OMITTED_MAPS = "The maps of {number} more variants are in the run directories."
MAPS_CAPTION = "Sentence “{sentence}”, {role}, layer {layer}, head 0, one seed of each."


def attention_section(report: Report) -> Section | None:
    """Return the maps of the gallery, for a figure and for the page's script; None without recorded maps.

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
    probe = gallery.variants[0].maps[0].probe
    sentence = probe["source"] or probe["target"] or ""
    single_line = " ".join(sentence.split())
    caption = MAPS_CAPTION.format(sentence=single_line, role=gallery.role, layer=gallery.layer)
    text = " ".join(sentences)
    return Section(
        "Attention maps", text, figure="attention", caption=caption, maps=payload(gallery)
    )


HEADS = (
    "The change of the baseline's test loss when a head is masked, and when all other heads of its layer are, for "
    "every head of every seed with a head ablation. Layers and heads are numbered from 0."
)


def head_section(report: Report) -> Section:
    """Return the figure of the head ablation, which is drawn for a baseline that has one."""
    return Section("Heads", HEADS, figure="heads")


SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    opening_section,
    change_section,
    declared_section,
    two_way_section,
    transfer_section,
    factor_section,
    variant_section,
    collapse_section,
    padding_section,
    reference_section,
    uncertainty_section,
    head_section,
    length_section,
    training_section,
    attention_section,
    translation_section,
    pitfall_section,
    tuning_section,
    runs_section,
    setup_section,
    data_section,
    statistics_section,
    other_tests_section,
    reproduction_section,
)


def report_sections(report: Report, figures: Collection[str] = ()) -> list[Section]:
    """Return the sections with content; ``figures`` are the names of the drawn figures.

    Raises:
        HeadToHeadError: As `Report`.
    """
    sections = []
    for make in SECTIONS:
        section = make(report)
        if section is not None and _has_content(section, figures):
            sections.append(section)
    return sections


def _has_content(section: Section, figures: Collection[str]) -> bool:
    """Return whether a section is printed: the text beside a figure alone is not a content."""
    if not section.title or section.frame is not None or section.figure in figures:
        return True
    if section.lines or section.code or section.parts:
        return True
    return bool(section.text) and not section.figure

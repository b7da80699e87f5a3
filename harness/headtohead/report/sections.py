"""The sections of a report in print order: functions that return a section, or None for a study without its subject."""

from __future__ import annotations

from collections.abc import Callable, Collection

from headtohead.report.attention import attention_section, heads_section
from headtohead.report.content import Report
from headtohead.report.contrasts import change_section, declared_section, factor_section
from headtohead.report.data import data_section, reference_section, translation_section
from headtohead.report.figures.lines import MOST_LINES
from headtohead.report.figures.rows import drawn_contrasts, drawn_variants
from headtohead.report.section import Section
from headtohead.report.setup import (
    reproduction_section,
    runs_section,
    setup_section,
    statistics_section,
    tuning_section,
)
from headtohead.report.training import target_section, training_section
from headtohead.report.two_way import two_way_section
from headtohead.report.uncertainty import uncertainty_section
from headtohead.report.variants import padding_section, pitfall_section, variant_section


def opening_section(report: Report) -> Section:
    """Return the figure of the main contrasts and the notes on the study."""
    contrasts, drawn = report.analysis.main_contrasts, len(drawn_contrasts(report.analysis))
    averaged = ", averaged over the settings of the other axes" * any(found.kind == "factor" for found in contrasts)
    own, other = (
        sum(found.paired is not None and (found.metric == report.analysis.metric) is is_own for found in contrasts)
        for is_own in (True, False)
    )
    return Section(
        "",
        figure="contrasts",
        caption=f"Every point is a seed{averaged}; the bar is the 95 % interval of the mean. Grey: no detected "
        "difference. Triangles: outside the magnified range."
        + f" The {drawn} largest differences." * (drawn < own)
        + " Contrasts in other metrics are in the table." * (other > 0),
        lines=[remark.text for remark in report.remarks if remark.severity == "note"],
    )


def length_section(report: Report) -> Section:
    """Return the figure of the score by length of the source."""
    return Section(
        "By length of the source",
        f"Mean over seeds; the band ranges from the lowest to the highest seed.{report.shown(MOST_LINES)}",
        figure="lengths",
    )


def cost_section(report: Report) -> Section:
    """Return the figure of the score against parameters, FLOPs and training time."""
    return Section("Score and cost", report.shown(len(drawn_variants(report.analysis))).strip(), figure="cost")


SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    opening_section,
    change_section,
    declared_section,
    two_way_section,
    factor_section,
    variant_section,
    padding_section,
    target_section,
    reference_section,
    uncertainty_section,
    heads_section,
    length_section,
    training_section,
    cost_section,
    attention_section,
    translation_section,
    pitfall_section,
    tuning_section,
    runs_section,
    setup_section,
    data_section,
    statistics_section,
    reproduction_section,
)


def report_sections(report: Report, figures: Collection[str] = ()) -> list[Section]:
    """Return the sections with content; ``figures`` are the names of the drawn figures."""
    found = [section for make in SECTIONS if (section := make(report)) is not None]
    return [
        section
        for section in found
        if not section.title
        or section.frame is not None
        or section.lines
        or section.code
        or section.parts
        or section.figure in figures
        or (section.text and not section.figure)
    ]

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


def opening_section(report: Report) -> Section:
    """Return the figure of the main contrasts and the notes on the study."""
    contrasts, rows = report.analysis.main_contrasts, forest_rows(report.analysis)
    averaged = ", averaged over the settings of the other axes" * any(
        found.family == "factor" for found in contrasts
    )
    is_own = [
        found.metric == report.analysis.metric for found in contrasts if found.paired is not None
    ]
    return Section(
        "",
        figure="contrasts",
        caption=f"Every point is a seed{averaged}; the bar is the interval of the direction. Grey bars "
        "contain 0: no difference is detected."
        + " Triangles: seeds outside the range of the magnified panel."
        * bool(magnified_range(rows))
        + f" The {len(rows)} largest differences." * (len(rows) < sum(is_own))
        + " Contrasts in other metrics are in the table." * (not all(is_own)),
        lines=[remark.text for remark in report.remarks if remark.severity == "note"],
    )


def attention_section(report: Report) -> Section | None:
    """Return the maps, in the page with entropy and distance of every head, or None without recorded maps."""
    gallery = report.gallery
    if gallery is None:
        return None
    texts = [
        "The same sentence, layer and head of every variant; layers and heads are numbered from 0. Rows are queries, "
        "columns keys; full colour is a weight of 1. Heads with the same index can have different functions in "
        "different models. In index.html, the entropy of a head is in nats and its distance in tokens.",
        f"The maps of {gallery.num_omitted} more variants are in the run directories."
        * bool(gallery.num_omitted),
    ]
    probe = gallery.variants[0].maps[0].probe
    shown = " ".join((probe["source"] or probe["target"] or "").split())
    return Section(
        "Attention maps",
        " ".join(filter(None, [*texts, *gallery.notes])),
        figure="attention",
        caption=f"Sentence “{shown}”, {gallery.role}, layer {gallery.layer}, head 0, one seed of each.",
        maps=payload(gallery),
    )


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
    lambda report: Section(
        "Heads",
        "The change of the baseline's test loss when a head is masked, and when all other heads of its layer are, for "
        "every head of every seed with a head ablation. Layers and heads are numbered from 0.",
        figure="heads",
    ),
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
    reproduction_section,
)


def report_sections(report: Report, figures: Collection[str] = ()) -> list[Section]:
    """Return the sections with content; ``figures`` are the names of the drawn figures."""
    found = [section for make in SECTIONS if (section := make(report)) is not None]

    def has_content(section: Section) -> bool:
        parts = section.lines, section.code, section.parts, section.text and not section.figure
        return (
            not section.title
            or section.frame is not None
            or section.figure in figures
            or any(parts)
        )

    return list(filter(has_content, found))

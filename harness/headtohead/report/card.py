"""The page of ``h2h card``: a component against others of its family on several tasks."""

from __future__ import annotations

from dataclasses import replace

from headtohead.analysis.wording import interval_caption, interval_text
from headtohead.config.labels import listed
from headtohead.errors import HeadToHeadError
from headtohead.planning.variants import DATA_AXIS
from headtohead.report.content import Report
from headtohead.report.render import markdown
from headtohead.report.section import Section, score, table
from headtohead.report.sections import ReportSections
from headtohead.report.setup import reproduction_section
from headtohead.report.variants import score_section
from headtohead.storage.metrics import readable

MAX_SENTENCES = 5
"""Maximum number of sentences of the answer."""

DIFFERENCES = (
    "Mean {metric} over seeds with its 95 % interval, and differences paired by seed. {intervals} No difference shown "
    "does not mean equal."
)
NOT_TWO_AXES = (
    "a card needs exactly two axes, data and a component family; this experiment has {axes}"
)


def card(report: Report, component: str) -> str:
    """Return the page in Markdown.

    Args:
        report: A study with exactly two axes, ``data`` and one component family, which declares its contrasts.
        component: Source of the component.

    Raises:
        HeadToHeadError: If the experiment has other axes, for example because its file was edited, or a file of the
            study is damaged.
    """
    axes = list(report.record.axes)
    if DATA_AXIS not in axes or len(axes) != 2:
        raise HeadToHeadError(NOT_TWO_AXES.format(axes=listed(axes)))
    report = replace(report, max_sentences=MAX_SENTENCES)
    repetition = reproduction_section(report)
    component_section = Section("Component", code=component)
    parts = [component_section, *repetition.parts]
    scores = replace(score_section(report), figure="", parts=())
    repetition = replace(repetition, title="How to repeat it", parts=parts)
    sections = ReportSections(differences_section(report), [scores, repetition], [])
    return markdown(report, sections, (), runs="")


def differences_section(report: Report) -> Section:
    """Return a row per dataset: the score of the component, and its difference from each other component.

    Without declared contrasts, it has no table.

    Args:
        report: A study with exactly two axes, ``data`` and one component family. Its declared contrasts compare the
            component with each other component on each dataset.

    Raises:
        HeadToHeadError: If a file of the study is damaged.
        ValueError: If the study has another number of axes beside ``data``.
        KeyError: If a variant has no value of one of the axes.
    """
    analysis = report.analysis
    by_slug = analysis.frames.by_slug
    family = analysis.families.declared
    (axis,) = (axis for axis in report.record.axes if axis != DATA_AXIS)
    rows: dict[str, dict[str, str]] = {}
    for contrast in family.contrasts:
        variant = by_slug[contrast.variant]
        against = by_slug[contrast.against]
        row = rows.setdefault(str(variant.axes[DATA_AXIS]), {})
        if not row:
            row["task"] = variant.config.data.dataset
            if contrast.metric != analysis.metric:
                row["task"] += f" ({readable(contrast.metric)})"
            summary = analysis.frames.summary(variant.slug, contrast.metric)
            row[str(variant.axes[axis])] = score(summary, contrast.metric)
        lines = [f"{contrast.difference_text} {contrast.verdict}", interval_text(contrast)]
        row[f"against {against.axes[axis]}"] = "\n".join(line for line in lines if line)
    intervals = interval_caption(analysis, family.contrasts)
    return Section(
        "",
        DIFFERENCES.format(metric=report.metric, intervals=intervals),
        frame=table(rows.values()),
        lines=[*(remark.text for remark in report.further_cautions), *report.notes],
    )

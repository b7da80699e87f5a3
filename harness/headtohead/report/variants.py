"""The sections on variants: scores, costs, further metrics and pitfalls."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headtohead.analysis.contrasts import Contrast
from headtohead.config.labels import shortened
from headtohead.planning.axes import DATA_AXIS
from headtohead.report.blocks import (
    Block,
    CellNote,
    Column,
    DataTable,
    Heading,
    Inline,
    Link,
    NamedFigure,
    Paragraph,
    Span,
    TableCell,
    TableRow,
    VerdictLabel,
)
from headtohead.report.cells import blank, difference_cell, score_cell, verdict_cells, verdict_columns
from headtohead.report.content import ReportContent
from headtohead.storage.experiment import Pitfall
from headtohead.storage.metrics import counted, show, show_count

MOST_NAMES = 12
"""Maximum number of variants that a cell names."""

ATTENTION_WIDTH = Column("attention\nwidth")
COST_COLUMNS = (
    Column("parameters"),
    Column("FLOPs\nper token"),
    ATTENTION_WIDTH,
    Column("tokens/s"),
    Column("memory,\nMB"),
    Column("time,\ns"),
)


def variant_blocks(content: ReportContent, figures: Sequence[str]) -> list[Block]:
    """Return the section with the figure of scores, the table of variants and further metrics."""
    analysis = content.analysis
    by_data = DATA_AXIS in content.record.axes
    other = " (on other data: from the variant with the baseline's other values)" * by_data
    blocks: list[Block] = [
        Heading(2, "Variants", "variants", "Variants"),
        Paragraph(
            f"{sentence_case(content.metric)} over seeds with its 95 % interval, the difference from the baseline"
            f"{other} paired by seed, and the costs of each variant.",
            "note",
        ),
    ]
    if "scores" in figures:
        caption = (
            "Every point is a seed, the tick the mean, the bar the 95 % interval. The vertical line is the "
            "baseline's mean, the band its standard deviation over seeds. Hollow points are variants that "
            "are not ranked."
        )
        blocks.append(
            NamedFigure("scores", "scores, a point per seed", with_omission(caption, content.omissions.get("scores")))
        )
    columns = (
        Column("variant", align="left"),
        Column(content.metric),
        Column("n"),
        Column("against baseline"),
        *verdict_columns(analysis.variants.tested, "contrasts"),
        *COST_COLUMNS,
    )
    contrasts = {contrast.left: contrast for contrast in analysis.variants.contrasts}
    blocks.append(DataTable(columns, tuple(_variant(content, slug, contrasts.get(slug)) for slug in content.listed)))
    if note := _stack_note(content):
        blocks.append(Paragraph(note, "note"))
    if content.num_unlisted:
        others = counted(content.num_unlisted, "more variant")
        listed = f"The best {len(content.listed)} and the baseline; "
        blocks.append(
            Paragraph(
                (
                    f"{listed}{others} {'is' if content.num_unlisted == 1 else 'are'} in ",
                    Link("results.csv", "results.csv"),
                    ".",
                ),
                "note",
            )
        )
    return [*blocks, *_further_metrics(content)]


def variant_note(content: ReportContent, slug: str) -> str:
    """Return why a variant is not ranked or only partially, or the variant that it is equal to; else empty."""
    analysis = content.analysis
    if withheld := analysis.withheld.get(slug, ""):
        return f"not ranked: {withheld}"
    equal = analysis.frames.by_slug[slug].equal_to
    partial = analysis.unranked.get(slug, "") if analysis.allow_partial else ""
    return partial or (f"equal to {content.title(equal).text}" if equal else "")


def primary_score(content: ReportContent, slug: str) -> TableCell:
    """Return a variant's primary score, or a blank cell if the variant is not ranked."""
    if withheld := content.analysis.withheld.get(slug, ""):
        return blank(f"not ranked: {withheld}")
    return score_cell(content.analysis.summaries[slug], content.analysis.metric)


def pitfall_table(content: ReportContent) -> DataTable | None:
    """Return the pitfalls of all variants with their consequences and variants, or None without pitfalls."""
    titles_by_pitfall: dict[Pitfall, list[str]] = {}
    variants = content.analysis.frames.by_slug
    for variant in variants.values():
        for pitfall in variant.pitfalls:
            titles_by_pitfall.setdefault(pitfall, []).append(variant.title)
    if not titles_by_pitfall:
        return None
    rows = (
        TableRow(
            (
                TableCell(pitfall.name),
                TableCell(pitfall.consequence),
                TableCell(Span(pitfall.field, "code")),
                TableCell("every variant" if len(titles) == len(variants) else shortened(titles, MOST_NAMES)),
            )
        )
        for pitfall, titles in titles_by_pitfall.items()
    )
    headings = ("pitfall", "consequence", "field", "variants")
    return DataTable(tuple(Column(heading, align="left", wrap=True) for heading in headings), tuple(rows))


def pitfall_blocks(content: ReportContent) -> list[Block]:
    """Return the section on pitfalls; empty if no variant has any."""
    table = pitfall_table(content)
    if table is None:
        return []
    return [
        Heading(2, "Pitfalls of these variants", "pitfalls"),
        Paragraph(
            "Settings that make a result less meaningful. They are allowed so that their effect can be compared; "
            "take them into account when you interpret the scores of these variants.",
            "note",
        ),
        table,
    ]


def sentence_case(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def with_omission(caption: str, omission: str | None) -> str:
    """Return a caption followed by the sentence on omitted variants, if there is one."""
    return " ".join(filter(None, [caption, omission]))


def _variant(content: ReportContent, slug: str, contrast: Contrast | None) -> TableRow:
    analysis = content.analysis
    baseline, note = slug == analysis.frames.baseline, variant_note(content, slug)
    notes = [CellNote(note)] if note else []
    if pitfalls := analysis.frames.by_slug[slug].pitfalls:
        names: list[Inline] = [piece for pitfall in pitfalls for piece in (", ", Link(pitfall.name, "#pitfalls"))]
        notes.append(CellNote(("pitfall: ", *names[1:]), "pitfalls"))
    verdict, *tests = verdict_cells(contrast, with_reason=not note)
    cells = (
        TableCell(content.title(slug), tuple(notes)),
        primary_score(content, slug),
        TableCell(str(analysis.summaries[slug].n)),
        difference_cell(contrast),
        TableCell(VerdictLabel("baseline", "baseline")) if baseline else verdict,
        *tests,
        *_costs(content, slug),
    )
    return TableRow(cells, emphasised=baseline)


def parameters(content: ReportContent, slug: str) -> str:
    """Return a variant's parameter count as text."""
    return show_count(content.analysis.frames.by_slug[slug].counts.total)


def _costs(content: ReportContent, slug: str) -> tuple[TableCell, ...]:
    """Return the cost cells of a variant; speed, memory and time are means over its runs."""
    variant = content.analysis.frames.by_slug[slug]
    d_ff, d_ff_asked = variant.d_ff, variant.d_ff_asked
    seconds, utilisation = (_mean(content, slug, f"system/{name}") for name in ("wall_seconds", "mfu"))
    notes = [] if len(_stack_sizes(content)) < 2 else [f"stack of {_range_text(_stack_sizes(content, slug))}"]
    notes += [] if math.isnan(utilisation) else [f"MFU {100 * utilisation:.0f} %"]
    return (
        TableCell(parameters(content, slug)),
        TableCell(show_count(variant.counts.flops_per_token)),
        TableCell(
            str(variant.counts.inner_width),
            (CellNote(f"d_ff {d_ff}, configured {d_ff_asked}"),) if d_ff != d_ff_asked else (),
        ),
        TableCell(show_count(_mean(content, slug, "system/tokens_per_second")), tuple(map(CellNote, notes))),
        TableCell(_whole(_mean(content, slug, "system/peak_memory_mb"))),
        TableCell(_whole(seconds) if seconds >= 100 else show(seconds, "system/wall_seconds")),
    )


def _mean(content: ReportContent, slug: str, metric: str) -> float:
    return content.analysis.frames.summary(slug, metric).mean


def _whole(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.0f}"


def _stack_sizes(content: ReportContent, slug: str | None = None) -> set[int]:
    """Return the stack sizes of all runs, or of a variant's runs."""
    frames = content.analysis.frames
    names = frames.details if slug is None else frames.runs.index[frames.runs["variant"] == frames.trained(slug)]
    return {len(run.execution.stack) or 1 for name in names if (run := frames.details[name]).execution}


def _range_text(numbers: set[int]) -> str:
    """Return the smallest and the largest number as text."""
    return " to ".join(map(str, sorted({min(numbers), max(numbers)}))) if numbers else "–"


def _stack_note(content: ReportContent) -> str | None:
    """Return a note on the stack sizes, which speed, memory and time depend on; None without stacks."""
    sizes = _stack_sizes(content)
    if not sizes or sizes == {1}:
        return None
    comparable = "stacks of the same size and " if len(sizes) > 1 else ""
    return (
        f"Tokens per second, memory and time are those of a stack of {_range_text(sizes)} runs; they are comparable "
        f"only between {comparable}runs on an equally busy machine. Parameters and FLOPs are those of a single run; "
        "FLOPs are those of a forward pass per target token."
    )


def _further_metrics(content: ReportContent) -> list[Block]:
    """Return the table of the other reported metrics that at least one run has; empty without any."""
    runs, metric = content.analysis.frames.runs, content.analysis.metric
    names = [name for name in content.record.metrics.report if name in runs and name != metric]
    if not names:
        return []
    costs = [index for index, column in enumerate(COST_COLUMNS) if column is not ATTENTION_WIDTH]
    rows = tuple(
        TableRow(
            (
                TableCell(content.title(slug)),
                *(content.score(slug, name) for name in names),
                *(_costs(content, slug)[index] for index in costs),
            ),
            emphasised=slug == content.analysis.frames.baseline,
        )
        for slug in content.listed
    )
    return [
        Heading(3, "Further metrics"),
        Paragraph(
            "Described, not tested. Losses are blank if the vocabulary or the labels differ from the baseline's; "
            "training losses also if label smoothing differs.",
            "note",
        ),
        DataTable(
            (Column("variant", align="left"), *map(Column, names), *(COST_COLUMNS[index] for index in costs)), rows
        ),
    ]

"""The sections on variants: their scores and costs, further metrics, and known pitfalls."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headtohead.analysis.contrasts import Contrast
from headtohead.report.blocks import (
    Block,
    Column,
    Heading,
    Inline,
    Link,
    NamedFigure,
    Note,
    Paragraph,
    Span,
    Table,
    TableCell,
    TableRow,
    VerdictLabel,
)
from headtohead.report.cells import blank, difference_cell, score_cell, verdict_cells, verdict_columns
from headtohead.report.content import ReportContent
from headtohead.storage.metrics import show, show_count

MOST_NAMES = 12
"""Variants that a cell names."""

COST_COLUMNS = (
    Column("parameters"),
    Column("FLOPs\nper token"),
    Column("inner\nwidth"),
    Column("tokens/s"),
    Column("memory,\nMB"),
    Column("time,\ns"),
)


def variant_blocks(content: ReportContent, figures: Sequence[str]) -> list[Block]:
    """Return the table of variants, best first, with their figure and further metrics."""
    analysis = content.analysis
    blocks: list[Block] = [
        Heading(2, "Variants", "variants", "Variants"),
        Paragraph(
            f"{sentence_case(content.metric)} over seeds with its 95 % interval, the difference from the baseline "
            "paired by seed, and what each score cost.",
            "note",
        ),
    ]
    if "scores" in figures:
        caption = (
            "Every point is one seed, the tick their mean, the bar the 95 % interval. The vertical line is the "
            "baseline's mean, the band one standard deviation of its seeds. Hollow points belong to variants that "
            "are not ranked."
        )
        blocks.append(
            NamedFigure("scores", "scores, every seed a point", with_part(caption, content.parts.get("scores")))
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
    blocks.append(Table(columns, tuple(_variant(content, slug, contrasts.get(slug)) for slug in content.listed)))
    if note := _stack_note(content):
        blocks.append(Paragraph(note, "note"))
    if content.unlisted:
        more = f"{content.unlisted} points between them" if analysis.path else f"{content.unlisted} more variants"
        shown = "The ends of the path; the " if analysis.path else f"The best {len(content.listed)} and the baseline; "
        blocks.append(Paragraph((shown + more + " are in ", Link("results.csv", "results.csv"), "."), "note"))
    return [*blocks, *_further_metrics(content)]


def variant_note(content: ReportContent, slug: str) -> str:
    """Return why a variant is not ranked, or which variant it equals; empty for any other."""
    analysis = content.analysis
    if withheld := analysis.withheld.get(slug, ""):
        return f"not ranked: {withheld}"
    equal = analysis.frames.variants[slug].get("equal_to")
    partial = analysis.unranked.get(slug, "") if analysis.allow_partial else ""
    return partial or (f"equals {content.title(equal).text}" if equal else "")


def primary_score(content: ReportContent, slug: str) -> TableCell:
    """Return a variant's primary score, blank where the variant is not ranked."""
    if withheld := content.analysis.withheld.get(slug, ""):
        return blank(f"not ranked: {withheld}")
    return score_cell(content.analysis.summaries[slug], content.analysis.metric)


def pitfall_table(content: ReportContent) -> Table | None:
    """Return the pitfalls of variants, each with what follows from it and the variants that have it."""
    having: dict[tuple[str, str, str], list[str]] = {}
    variants = content.analysis.frames.variants
    for slug, variant in variants.items():
        for pitfall in variant.get("pitfalls", ()):
            having.setdefault((pitfall["name"], pitfall["consequence"], pitfall["field"]), []).append(
                content.title(slug).text
            )
    if not having:
        return None
    rows = (
        TableRow(
            (
                TableCell(name),
                TableCell(consequence),
                TableCell(Span(key, "code")),
                TableCell(_names(titles, len(variants))),
            )
        )
        for (name, consequence, key), titles in having.items()
    )
    headings = ("pitfall", "what follows", "choice", "in")
    return Table(tuple(Column(heading, align="left", wrap=True) for heading in headings), tuple(rows))


def fault_blocks(content: ReportContent) -> list[Block]:
    """Return the section on pitfalls; nothing where no variant has any."""
    table = pitfall_table(content)
    if table is None:
        return []
    return [
        Heading(2, "Pitfalls in these variants", "pitfalls"),
        Paragraph(
            "Choices that make a result mean less than it seems to. They are allowed, so that they can be compared; "
            "read every score of these variants with them in mind.",
            "note",
        ),
        table,
    ]


def sentence_case(text: str) -> str:
    """Return a text that starts with a capital letter."""
    return text[:1].upper() + text[1:]


def with_part(caption: str, part: str | None) -> str:
    """Return a caption that ends in what the figure leaves out."""
    return " ".join(filter(None, [caption, part]))


def _variant(content: ReportContent, slug: str, contrast: Contrast | None) -> TableRow:
    analysis = content.analysis
    baseline, note = slug == analysis.frames.baseline, variant_note(content, slug)
    notes = [Note(note)] if note else []
    if pitfalls := analysis.frames.variants[slug].get("pitfalls", ()):
        names: list[Inline] = [piece for pitfall in pitfalls for piece in (", ", Link(pitfall["name"], "#pitfalls"))]
        notes.append(Note(("pitfall: ", *names[1:]), "pitfalls"))
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
    """Return a variant's number of parameters."""
    return show_count((content.analysis.frames.variants[slug].get("parameters") or {}).get("total"))


def _costs(content: ReportContent, slug: str) -> tuple[TableCell, ...]:
    """Return the cost columns of a variant; speed, memory and time are means over its runs."""
    variant = content.analysis.frames.variants[slug]
    d_ff, asked = variant.get("d_ff"), variant.get("d_ff_asked")
    seconds = _mean(content, slug, "system/wall_seconds")
    return (
        TableCell(parameters(content, slug)),
        TableCell(show_count(variant.get("flops_per_token"))),
        TableCell(str(variant.get("inner_width", "–")), (Note(f"d_ff {d_ff} for {asked}"),) if d_ff != asked else ()),
        TableCell(show_count(_mean(content, slug, "system/tokens_per_second"))),
        TableCell(_whole(_mean(content, slug, "system/peak_memory_mb"))),
        TableCell(_whole(seconds) if seconds >= 100 else show(seconds, "system/wall_seconds")),
    )


def _mean(content: ReportContent, slug: str, metric: str) -> float:
    return content.analysis.frames.summary(slug, metric).mean


def _whole(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.0f}"


def _stack_note(content: ReportContent) -> str | None:
    """Return how many runs of a variant one program trained, on which time and memory depend."""
    sizes = {
        len(execution.get("stack") or [None])
        for record in content.analysis.frames.records.values()
        if (execution := record.get("execution"))
    }
    if not sizes or sizes == {1}:
        return None
    low, high = min(sizes), max(sizes)
    number = f"{high}" if low == high else f"{low} to {high}"
    return (
        f"Tokens per second, memory and time are those of the program that trained {number} "
        f"runs of a variant together; parameters and FLOPs are those of one run."
    )


def _further_metrics(content: ReportContent) -> list[Block]:
    """Return the metrics that the experiment reports beside the primary one, those that some run has."""
    runs, metric = content.analysis.frames.runs, content.analysis.metric
    asked = [str(name) for name in content.experiment["metrics"].get("report", [])]
    names = [name for name in asked if name in runs and name != metric]
    if not names:
        return []
    costs = [number for number, column in enumerate(COST_COLUMNS) if column.heading != "inner\nwidth"]
    rows = tuple(
        TableRow(
            (
                TableCell(content.title(slug)),
                *(content.score(slug, name) for name in names),
                *(_costs(content, slug)[number] for number in costs),
            ),
            emphasised=slug == content.analysis.frames.baseline,
        )
        for slug in content.listed
    )
    return [
        Heading(3, "Further metrics"),
        Paragraph(
            "Described, not tested. Losses are blank where the vocabulary or the predicted tokens differ from the "
            "baseline's; training losses also where label smoothing differs.",
            "note",
        ),
        Table(
            (Column("variant", align="left"), *map(Column, names), *(COST_COLUMNS[number] for number in costs)), rows
        ),
    ]


def _names(titles: Sequence[str], variants: int) -> str:
    """Return the variants that have a pitfall; of very many the first ones."""
    if len(titles) == variants:
        return "every variant"
    more = len(titles) - MOST_NAMES
    return ", ".join(titles) if more <= 1 else f"{', '.join(titles[:MOST_NAMES])} and {more} more"

"""Compose the list of blocks of a whole report."""

from __future__ import annotations

from collections.abc import Sequence

from headtohead.figures.forest import magnified_range
from headtohead.report.attention import attention_blocks
from headtohead.report.blocks import Block, BulletList, Contents, Heading, NamedFigure, Paragraph, Prose, Span
from headtohead.report.changes import change_blocks
from headtohead.report.content import ReportContent
from headtohead.report.convergence import convergence_blocks
from headtohead.report.data_description import data_blocks
from headtohead.report.declared import declared_blocks
from headtohead.report.factors import factor_blocks
from headtohead.report.figures.forest import forest_rows
from headtohead.report.reference_points import reference_blocks
from headtohead.report.reproduction import reproduction_blocks, statistics_blocks
from headtohead.report.runs import run_blocks
from headtohead.report.setup import entry_blocks, setup_blocks, setup_line
from headtohead.report.targets import target_blocks
from headtohead.report.translations import translation_blocks
from headtohead.report.tuning import tuning_blocks
from headtohead.report.two_way import two_way_blocks
from headtohead.report.uncertainty import uncertainty_blocks
from headtohead.report.unpadded import unpadded_blocks
from headtohead.report.variants import pitfall_blocks, variant_blocks, with_omission


def report_blocks(content: ReportContent, figures: Sequence[str] = ()) -> list[Block]:
    """Return the blocks of a report in print order.

    ``figures`` are the names of the drawn figures; sections without their figure omit it.
    """
    analysis = content.analysis
    return [
        *_opening(content, figures),
        *change_blocks(analysis),
        *declared_blocks(content),
        *two_way_blocks(analysis),
        *(factor_blocks(content, figures) if content.answers_factors else ()),
        *variant_blocks(content, figures),
        *target_blocks(content),
        *reference_blocks(analysis),
        *(() if content.answers_factors else factor_blocks(content, figures)),
        *uncertainty_blocks(analysis),
        *unpadded_blocks(content),
        *_figure_sections(content, figures),
        *attention_blocks(content, figures),
        *translation_blocks(content),
        *pitfall_blocks(content),
        *tuning_blocks(analysis),
        *run_blocks(content),
        *setup_blocks(analysis),
        *data_blocks(content),
        *statistics_blocks(content),
        *reproduction_blocks(content),
    ]


def _opening(content: ReportContent, figures: Sequence[str]) -> list[Block]:
    """Return question, answer, set-up, main figure and facts."""
    analysis, record = content.analysis, content.record
    blocks: list[Block] = [Heading(1, record.question)]
    if content.banner:
        blocks.append(Paragraph(content.banner, "banner"))
    blocks.append(Paragraph(content.answer, "answer"))
    blocks += [
        Paragraph(Span(caution, "alarm") if caution in content.warnings else caution) for caution in content.cautions
    ]
    blocks.append(Paragraph(setup_line(analysis), "note"))
    if "contrasts" in figures:
        averaged = ", averaged over the settings of the other axes" if content.answers_factors else ""
        caption = (
            f"Every point is a seed{averaged}; the bar is the 95 % interval of the mean. Grey: no detected difference."
        )
        if magnified_range(forest_rows(analysis)):
            caption += " Triangles: differences outside the magnified range."
        caption = with_omission(caption, content.omissions.get("contrasts"))
        blocks.append(NamedFigure("contrasts", "differences, a point per seed", caption))
    if content.facts:
        blocks.append(BulletList(tuple(content.facts)))
    if record.description:
        blocks.append(Prose(record.description))
    return [*blocks, *entry_blocks(analysis), Contents()]


def _figure_sections(content: ReportContent, figures: Sequence[str]) -> list[Block]:
    """Return the sections with only a figure: head ablation, lengths, training curves and costs."""
    seeds = "Mean over seeds; the band ranges from the lowest to the highest seed."
    lines, cost = content.omissions.get("lines"), content.omissions.get("cost")
    curves = f"{seeds} Steps that not every seed reached are omitted."
    sections: dict[str, list[Block]] = {
        "heads": [
            Heading(2, "Heads", "heads", "Heads"),
            Paragraph(
                "The change of the baseline's test loss when a head is masked, and when all other heads of its layer "
                "are masked, for every head of every seed with a head ablation. Layers and heads are numbered from 0.",
                "note",
            ),
            NamedFigure("heads", "increase in loss from masking heads"),
        ],
        "lengths": [
            Heading(2, "By length of the source", "lengths", "Lengths"),
            NamedFigure("lengths", "score by length", with_omission(seeds, lines)),
        ],
        "curves": [
            Heading(2, "Training", "curves", "Training"),
            NamedFigure("curves", "training curves", with_omission(curves, lines)),
            *convergence_blocks(content.analysis, content.listed),
        ],
        "cost": [Heading(2, "Score and cost", "cost", "Cost"), NamedFigure("cost", "score against cost", cost or "")],
    }
    return [block for name, blocks in sections.items() if name in figures for block in blocks]

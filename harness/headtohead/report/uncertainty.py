"""The section on sources of uncertainty: seeds, test sentences, and whether pairing by seed helps."""

from __future__ import annotations

import math

from headtohead.analysis.study import Analysis
from headtohead.analysis.uncertainty import Uncertainty
from headtohead.report.blocks import Block, Column, DataTable, Heading, Paragraph, TableCell, TableRow
from headtohead.report.cells import blank, mean_cell, paired_cell
from headtohead.report.figures.forest import contrast_name
from headtohead.statistics.variance import CrossedEstimate, MeanEstimate
from headtohead.storage.metrics import readable, show


def uncertainty_blocks(analysis: Analysis) -> list[Block]:
    """Return the section; empty with fewer than two seeds."""
    found = analysis.uncertainty
    if found is None:
        return []
    metric = readable(analysis.metric)
    scope = (
        "Intervals include training seeds, draws of the data and test sentences, which each seed draws anew from this "
        "corpus."
        if found.has_draws
        else "Intervals over seeds hold for this draw of the data and these test sentences; the intervals with "
        "sentences hold for other sentences of this kind."
    )
    blocks: list[Block] = [
        Heading(2, "Sources of uncertainty", "uncertainty", "Uncertainty"),
        Paragraph(f"Standard deviation of {metric} by source. {scope}", "note"),
        _components(found, analysis.metric),
    ]
    if found.reason:
        blocks.append(Paragraph(f"Test sentences are not analysed: {found.reason}."))
    if not math.isnan(found.correlation):
        blocks.append(Paragraph(_pairing(found)))
    if found.contrasts and (not found.reason or not found.pairing_helps):
        blocks.append(_contrasts(analysis, found))
    return blocks


def _components(found: Uncertainty, metric: str) -> DataTable:
    sentences = f"test sentences ({found.num_sentences:,})" if found.num_sentences else "test sentences"
    sds = {"variant": found.variant_sd}
    if found.has_draws:
        sds["training seed, draw of the data and its test sentences"] = found.seed_sd
    else:
        sds |= {"training seed": found.seed_sd, sentences: found.sentence_sd}
    rows = [
        TableRow((TableCell(source), blank() if math.isnan(sd) else TableCell(show(sd, metric))))
        for source, sd in sds.items()
    ]
    if not found.has_draws:
        rows.append(TableRow((TableCell("draw of the data"), blank("all runs use the same draw"))))
    return DataTable((Column("source", align="left"), Column("standard deviation")), tuple(rows))


def _pairing(found: Uncertainty) -> str:
    text = f"Intra-class correlation of seeds: {f'{found.correlation:.2f}'.replace('-', '−')}"
    if found.pairing_helps and found.has_draws:
        return (
            f"{text}. Variants share this fraction of the variance over seeds and draws of the data, which pairing by "
            "seed removes."
        )
    if found.pairing_helps:
        return f"{text}. Variants share this fraction of the variance over seeds, which pairing by seed removes."
    return (
        f"{text}. Pairing by seed brought nothing: a seed does not affect variants alike. Unpaired intervals, with the "
        "variance pooled over all variants, are beside the paired intervals."
    )


def _contrasts(analysis: Analysis, found: Uncertainty) -> DataTable:
    columns = [Column("contrast", align="left"), Column("over seeds,\n95 %")]
    columns += [Column("with sentences,\n95 %")] * (not found.reason)
    columns += [Column("unpaired,\n95 %")] * (not found.pairing_helps)
    rows = []
    for row in found.contrasts:
        cells = [TableCell(contrast_name(analysis, row.contrast)), paired_cell(row.contrast.paired, analysis.metric)]
        if not found.reason:
            cells.append(_estimate_cell(row.with_sentences, analysis.metric))
        if not found.pairing_helps:
            cells.append(_estimate_cell(row.unpaired, analysis.metric))
        rows.append(TableRow(tuple(cells)))
    return DataTable(tuple(columns), tuple(rows))


def _estimate_cell(estimate: CrossedEstimate | MeanEstimate | None, metric: str) -> TableCell:
    if estimate is None:
        return blank()
    interval = estimate.interval()
    return mean_cell(show(estimate.mean, metric, signed=True), interval.low, interval.high, metric)

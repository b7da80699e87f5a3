"""The section on attention maps: the same head of every variant, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis
from headtohead.figures.heat_map import HeatMap, heat_map_figure
from headtohead.report.blocks import (
    AttentionMaps,
    Block,
    Column,
    DataTable,
    Details,
    Heading,
    NamedFigure,
    Paragraph,
    Span,
    TableCell,
    TableRow,
)
from headtohead.report.content import ReportContent
from headtohead.report.gallery import Gallery, payload
from headtohead.schema.roles import ROLES
from headtohead.storage.attention_maps import entropy, mean_distance
from headtohead.storage.metrics import counted


def attention_blocks(content: ReportContent, figures: Sequence[str]) -> list[Block]:
    """Return the section; empty without recorded maps."""
    gallery = content.gallery
    if gallery is None or "attention" not in figures:
        return []
    source = gallery.variants[0].maps[gallery.probe].probe["source"]
    opening = (
        f"Sentence “{source}”, {gallery.role}, layer {gallery.layer}, head {gallery.head}, one seed of each variant."
    )
    return [
        Heading(2, "Attention maps", "attention", "Attention"),
        Paragraph(_explanation(content, gallery, numbered="heads" not in figures), "note"),
        AttentionMaps(NamedFigure("attention", "attention maps side by side", opening), payload(gallery)),
        Details("Entropy and distance of every head, first sentence", (_head_table(gallery),)),
    ]


def attention_figure(gallery: Gallery) -> Figure:
    """Draw the selected head of every variant side by side."""
    maps = []
    for variant in gallery.variants:
        weights = variant.weights(gallery.probe, gallery.role)
        if weights is None or gallery.layer >= len(weights) or gallery.head >= weights.shape[1]:
            continue
        queries, keys = variant.maps[gallery.probe].tokens(gallery.role)
        title = f"{variant.title} (seed {variant.seed})"
        maps.append(HeatMap(weights[gallery.layer, gallery.head], queries, keys, title))
    return heat_map_figure(maps)


def _explanation(content: ReportContent, gallery: Gallery, *, numbered: bool) -> tuple[str | Span, ...]:
    text = "The same sentence, layer and head of every variant. Rows are queries and columns are keys; full colour is "
    text += "a weight of 1. "
    if numbered:
        text += "Layers and heads are numbered from 0. "
    text += (
        "The order of heads is arbitrary: heads with the same index can have different functions in different models. "
        "Entropy is in nats, distance in tokens."
    )
    if difference := _fused_difference(content.analysis):
        text += f" The maps come from the explicit path; its output differs from the fast path by at most {difference}."
    if gallery.num_omitted:
        text += f" The maps of {counted(gallery.num_omitted, 'more variant')} are in the run directories."
    signed: tuple[str | Span, ...] = ()
    if gallery.signed:
        text += f" Weights can be negative in {gallery.signed}: negative weights have "
        signed = (Span("the other colour", "negative"), ", full at −1.")
    return (text, *signed, "".join(f" {note}" for note in gallery.notes))


def _fused_difference(analysis: Analysis) -> str | None:
    """Return the largest difference between the outputs of the explicit and the fast path over all runs."""
    runs = analysis.frames.runs
    if "attention/fused_difference" not in runs:
        return None
    largest = float(runs["attention/fused_difference"].max())
    return None if math.isnan(largest) else f"{largest:.1e}"


def _head_table(gallery: Gallery) -> DataTable:
    """Return a table of entropy and distance of every head for the first sentence, a row per variant and role."""
    rows = []
    for variant in gallery.variants:
        maps = variant.maps[gallery.probe].weights
        for role, weights in ((role, maps[role]) for role in ROLES if role in maps):
            pairs = zip(entropy(weights).flat, mean_distance(weights).flat, strict=True)
            heads = ", ".join(f"{head_entropy:.2f} / {distance:.2f}" for head_entropy, distance in pairs)
            rows.append(TableRow((TableCell(variant.title), TableCell(role), TableCell(heads))))
    columns = (
        Column("variant", align="left"),
        Column("role", align="left"),
        Column("entropy / distance, layer by layer and head by head", align="left", wrap=True),
    )
    return DataTable(columns, tuple(rows))

"""Notebook output of attention maps: the heads of every layer side by side, with token labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headtohead.figures.heat_map import HeatMap, heat_map_figure
from headtohead.figures.style import to_svg
from headtohead.report.blocks import Block, NamedFigure, Paragraph, Span, Text
from headtohead.report.html import html_blocks
from headtohead.storage.attention_maps import map_tokens

HEADINGS = {
    "cross": "where the decoder attends to in the source",
    "encoder": "where the encoder attends to in the source",
    "decoder": "where the decoder attends to in its own output",
}
MOST_CELLS = 6_000
"""Maximum number of drawn weights, because a notebook file contains every figure."""


def maps_html(record: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> str:
    """Return the maps of a sentence as HTML.

    Args:
        record: Tokens of both sides, and entropy and distance by role, layer and head.
        weights: Weights ``[layer, head, query, key]`` by role.
    """
    remaining, figures = MOST_CELLS, {}
    blocks: list[Block] = [Paragraph(_caption(record))]
    for role, heading in HEADINGS.items():
        maps = weights.get(role)
        if maps is None or not maps.size:
            continue
        layers, heads, queries, keys = maps.shape
        fitting = max(remaining // (heads * queries * keys), 0 if remaining < MOST_CELLS else 1)
        drawn_layers = range(max(layers - fitting, 0), layers)
        remaining -= len(drawn_layers) * heads * queries * keys
        blocks.append(Paragraph((Span(role, "strong"), f": {heading}")))
        if drawn_layers:
            rows, columns = map_tokens(record, role)
            heat_maps = [
                HeatMap(maps[layer, head], rows, columns, _head(record, role, layer, head))
                for layer in drawn_layers
                for head in range(heads)
            ]
            figures[role] = to_svg(heat_map_figure(heat_maps, across=heads), salt=role)
            blocks.append(NamedFigure(role, heading))
        if len(drawn_layers) < layers:
            blocks.append(Paragraph(_omitted_layers(role, layers - len(drawn_layers))))
    return html_blocks(blocks, figures, inline=True)


def _caption(record: Mapping[str, Any]) -> Text:
    inputs = {"translation": "its own translation", "reference": "the reference"}
    decoder_input = inputs.get(record["target_from"], "the given target")
    signs = "Negative weights are orange, −1 in full colour. " if record.get("signed") else ""
    notes = "".join(f" Maps of the {role}: {note}." for role, note in record.get("map_notes", {}).items())
    return (
        Span(record["source"], "strong"),
        ": each row is a query token, each column a key token; full colour is a weight of 1. "
        f"{signs}The decoder's input is {decoder_input}.{notes}",
    )


def _head(record: Mapping[str, Any], role: str, layer: int, head: int) -> str:
    entropy = record["heads"][role][layer][head]["entropy"]
    suffix = "" if entropy is None else f", entropy {entropy:.2f}"
    return f"layer {layer}, head {head}{suffix}"


def _omitted_layers(role: str, layers: int) -> Text:
    count = "1 earlier layer is" if layers == 1 else f"{layers} earlier layers are"
    return (f"{count} not drawn; ", Span(f'.weights["{role}"]', "code"), " contains them.")

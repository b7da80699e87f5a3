"""Attention maps as cell output: the heads of every layer side by side, tokens as labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from headtohead.report.attention import panel_svg

HEADINGS = {
    "cross": "where the decoder looks in the source",
    "encoder": "where the encoder looks in the source",
    "decoder": "where the decoder looks in what it has written",
}
MOST_CELLS = 6_000
"""Weights that are drawn, some 150 bytes each; a notebook keeps them all in its file."""

PAGE = '<div style="background: white; color: #1a1a1a; padding: 0.6em; display: inline-block; max-width: 100%">{}</div>'
"""Maps are drawn in ink on paper, whatever the colours of the page around them are."""


def maps_html(record: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> str:
    """Return the maps of one sentence.

    Args:
        record: Tokens of both sides, and entropy and distance by role, layer and head.
        weights: ``[layer, head, query, key]`` by role.
    """
    room, parts = MOST_CELLS, [_caption(record)]
    for role, heading in HEADINGS.items():
        maps = weights.get(role)
        if maps is None or not maps.size:
            continue
        layers, heads, queries, keys = maps.shape
        fitting = max(room // (heads * queries * keys), 0 if room < MOST_CELLS else 1)
        shown = range(max(layers - fitting, 0), layers)
        room -= len(shown) * heads * queries * keys
        parts.append(f'<p style="margin: 0.8em 0 0.2em"><b>{role}</b>: {heading}</p>')
        parts += [_layer(record, role, layer, maps[layer]) for layer in shown]
        if len(shown) < layers:
            parts.append(_left_out(role, layers - len(shown)))
    return PAGE.format("".join(parts))


def tokens(record: Mapping[str, Any], role: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the labels of queries and keys in ``role``."""
    source, target = record["source_tokens"], record["target_tokens"]
    keys = {"encoder": source, "decoder": target, "cross": record.get("cross_tokens", source)}
    return source if role == "encoder" else target, keys[role]


def _caption(record: Mapping[str, Any]) -> str:
    read = {"translation": "its own translation", "reference": "the reference"}
    read_from = read.get(record["target_from"], "the given target")
    signs = "Negative weights are orange, −1 the fullest. " if record.get("signed") else ""
    notes = "".join(f" Maps of the {role}: {note}." for role, note in record.get("map_notes", {}).items())
    return (
        f"<p><b>{escape(record['source'])}</b>: each row is a token that looks, each column one "
        f"that is looked at; the fuller the colour, the larger the weight (0 to 1). "
        f"{signs}The decoder reads {read_from}.{escape(notes)}</p>"
    )


def _layer(record: Mapping[str, Any], role: str, layer: int, maps: np.ndarray) -> str:
    queries, keys = tokens(record, role)
    figures = "".join(
        f'<figure style="display: inline-block; margin: 0.3em 0.6em; vertical-align: top">'
        f'<figcaption style="font-size: 0.85em">{_head(record, role, layer, head)}</figcaption>'
        f"{panel_svg(matrix, queries, keys)}</figure>"
        for head, matrix in enumerate(maps)
    )
    return f"<div>{figures}</div>"


def _head(record: Mapping[str, Any], role: str, layer: int, head: int) -> str:
    entropy = record["heads"][role][layer][head]["entropy"]
    spread = "" if entropy is None else f", entropy {entropy:.2f}"
    return f"layer {layer}, head {head}{spread}"


def _left_out(role: str, layers: int) -> str:
    count = "1 earlier layer is" if layers == 1 else f"{layers} earlier layers are"
    return f'<p>{count} not drawn; <code>.weights["{role}"]</code> has them.</p>'

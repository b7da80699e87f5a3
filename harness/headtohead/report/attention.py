"""Attention maps for the page: one run per variant, small enough to travel inside it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.study import Analysis
from headtohead.figures.style import INK, MUTED, PALETTE
from headtohead.storage.attention_maps import ProbeMaps, entropy, load_maps, mean_distance

ROLES = ("encoder", "decoder", "cross")
MOST_BYTES = 1_500_000
"""Weights that go into one page, a byte each; further variants stay in their run directories."""
MOST_VARIANTS = 24


@dataclass(frozen=True)
class Shown:
    """The maps of one variant: those of its first finished seed."""

    slug: str
    title: str
    seed: int
    maps: Sequence[ProbeMaps] = field(repr=False)

    def weights(self, probe: int, role: str) -> NDArray[np.float32] | None:
        """Return ``[layer, head, query, key]``, or None where the run has no such map."""
        return self.maps[probe].weights.get(role) if probe < len(self.maps) else None


@dataclass(frozen=True)
class Gallery:
    """What is shown, what is not, and where the page opens."""

    shown: tuple[Shown, ...]
    left_out: int
    probe: int = 0
    role: str = "cross"
    layer: int = 0
    head: int = 0

    @property
    def signed(self) -> str:
        """The variants whose weights may be negative, in words; empty if there are none."""
        return ", ".join(f"“{shown.title}”" for shown in self.shown if shown.maps[0].probe.get("signed"))

    @property
    def notes(self) -> list[str]:
        """How maps are made where training has none, a sentence for each variant."""
        return [
            f"“{shown.title}”: {'; '.join(dict.fromkeys(notes.values()))}."
            for shown in self.shown
            if (notes := shown.maps[0].probe.get("map_notes"))
        ]


def shown_run(analysis: Analysis, slug: str) -> tuple[str, int] | None:
    """Return run name and seed of the first seed of a variant that is done."""
    rows = analysis.frames.rows(slug)
    runs = zip(rows.index, rows["state"], rows["seed"], strict=True)
    return next(((str(run), int(seed)) for run, state, seed in runs if state == "DONE"), None)


def gallery(analysis: Analysis) -> Gallery | None:
    """Gather the maps of as many variants as the page has room for, in order of the design."""
    shown: list[Shown] = []
    room, left_out = MOST_BYTES, 0
    for slug, variant in analysis.frames.variants.items():
        run = shown_run(analysis, slug) if analysis.frames.trained(slug) == slug else None
        if run is None:
            continue
        if len(shown) >= MOST_VARIANTS or room <= 0:
            left_out += 1
            continue
        maps = load_maps(analysis.frames.path(run[0]))
        size = sum(weights.size for probe in maps for weights in probe.weights.values())
        if not maps or (size > room and shown):
            left_out += bool(maps)
            continue
        room -= size
        shown.append(Shown(slug, str(variant["title"]), run[1], maps))
    if not shown:
        return None
    role = next((r for r in ("cross", *ROLES) if shown[0].weights(0, r) is not None), "cross")
    first = shown[0].weights(0, role)
    return Gallery(tuple(shown), left_out, 0, role, 0 if first is None else len(first) - 1, 0)


def payload(found: Gallery) -> dict[str, Any]:
    """Return the maps as JSON: a byte per weight, tokens as labels, both numbers of each head."""
    return {
        "open": {"probe": found.probe, "role": found.role, "layer": found.layer, "head": found.head},
        "probes": [probe.probe["source"] for probe in found.shown[0].maps],
        "roles": [role for role in ROLES if any(shown.weights(0, role) is not None for shown in found.shown)],
        "variants": [
            {"title": shown.title, "seed": shown.seed, "probes": [_probe(probe) for probe in shown.maps]}
            for shown in found.shown
        ],
    }


def _probe(probe: ProbeMaps) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "source": list(probe.probe["source_tokens"]),
        "target": list(probe.probe["target_tokens"]),
        "cross": probe.tokens("cross")[1],
        "roles": {},
    }
    for role, weights in probe.weights.items():
        scale = float(np.abs(weights).max(initial=0.0)) or 1.0
        entry["roles"][role] = {
            "shape": list(weights.shape),
            "scale": round(scale, 6),
            "signed": bool((weights < 0).any()),
            "entropy": np.round(np.nan_to_num(entropy(weights)), 2).tolist(),
            "distance": np.round(np.nan_to_num(mean_distance(weights)), 2).tolist(),
            "bytes": base64.b64encode(_quantised(weights, scale)).decode("ascii"),
        }
    return entry


def _quantised(weights: NDArray[np.float32], scale: float) -> bytes:
    """Return a byte per weight: 0 to 255, or 1 to 255 around 128 where weights are signed."""
    parts = weights.astype(np.float64) / scale
    levels = parts * 127 + 128 if (weights < 0).any() else parts * 255
    return levels.round().clip(0, 255).astype(np.uint8).tobytes()


def panel_svg(
    weights: NDArray[np.floating[Any]],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    cell: int = 17,
    colours: Mapping[str, str] | None = None,
) -> str:
    """Return one head's map ``[query, key]`` as an SVG with a token at every row and column.

    Drawn without interpolation on a scale from 0 to 1, so that panels compare; negative weights
    have a colour of their own, as full at -1.
    """
    tone = {"ink": INK, "muted": MUTED, "plus": PALETTE[0], "minus": PALETTE[1], **(colours or {})}
    left = 10 + 7 * max(len(_cut(token)) for token in queries)
    top = 10 + 5.6 * max(len(_cut(token)) for token in keys)
    width, height = left + cell * len(keys) + 22, top + cell * len(queries) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-size="10.5" '
        f'font-family="system-ui, sans-serif" role="img">'
    ]
    for j, key in enumerate(keys):
        x = left + (j + 0.62) * cell
        parts.append(
            f'<text transform="translate({x:.1f} {top - 5:.1f}) rotate(-55)" '
            f'fill="{tone["ink"]}">{escape(_cut(key))}</text>'
        )
    for i, query in enumerate(queries):
        y = top + (i + 0.72) * cell
        parts.append(
            f'<text x="{left - 5:.1f}" y="{y:.1f}" text-anchor="end" fill="{tone["ink"]}">{escape(_cut(query))}</text>'
        )
    parts.append(
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{cell * len(keys)}" '
        f'height="{cell * len(queries)}" fill="none" stroke="{tone["muted"]}" '
        f'stroke-width="0.6"/>'
    )
    for i, query in enumerate(queries):
        for j, key in enumerate(keys):
            weight = float(weights[i, j])
            if abs(weight) < 0.002:
                continue
            fill = tone["plus"] if weight > 0 else tone["minus"]
            parts.append(
                f'<rect x="{left + j * cell:.1f}" y="{top + i * cell:.1f}" width="{cell}" '
                f'height="{cell}" fill="{fill}" fill-opacity="{min(abs(weight), 1):.2f}">'
                f"<title>{escape(query)} → {escape(key)}: {weight:.3f}</title></rect>"
            )
    return "".join([*parts, "</svg>"])


def sheet_svg(found: Gallery, columns: int = 3) -> str:
    """Return one head of every shown variant side by side, as a figure for the Markdown report."""
    panels = []
    for shown in found.shown:
        weights = shown.weights(found.probe, found.role)
        if weights is None or found.layer >= len(weights) or found.head >= weights.shape[1]:
            continue
        queries, keys = shown.maps[found.probe].tokens(found.role)
        svg = panel_svg(weights[found.layer, found.head], queries, keys)
        panels.append((f"{shown.title} (seed {shown.seed})", svg, *_size(svg)))
    across = max((width for _, _, width, _ in panels), default=0) + 24
    down = max((height for _, _, _, height in panels), default=0) + 34
    across = max(across, 8 + 6.3 * max((len(title) for title, *_ in panels), default=0))
    rows = -(-len(panels) // columns)
    whole_width, whole_height = across * min(columns, len(panels)), down * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole_width:.0f} '
        f'{whole_height:.0f}" width="{whole_width:.0f}" height="{whole_height:.0f}" '
        f'font-family="system-ui, sans-serif">'
    ]
    for index, (title, svg, _, _) in enumerate(panels):
        x, y = (index % columns) * across, (index // columns) * down
        parts.append(
            f'<g transform="translate({x:.0f} {y:.0f})"><text x="4" y="14" '
            f'font-size="11" font-weight="bold" fill="{INK}">{escape(title)}</text>'
            f'<g transform="translate(0 20)">{svg}</g></g>'
        )
    return "".join([*parts, "</svg>"])


def _size(svg: str) -> tuple[float, float]:
    width, height = svg.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()
    return float(width), float(height)


def _cut(token: str, longest: int = 14) -> str:
    return token if len(token) <= longest else f"{token[: longest - 1]}…"

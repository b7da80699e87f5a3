"""Attention maps that fit into a page: one run per variant, a byte for each weight."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.study import Analysis
from headtohead.storage.attention_maps import ProbeMaps, entropy, load_maps, mean_distance

ROLES = ("encoder", "decoder", "cross")
MOST_BYTES = 1_500_000
"""Weights that go into one page, a byte each; further variants stay in their run directories."""
MOST_VARIANTS = 24


@dataclass(frozen=True)
class VariantMaps:
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
    """The maps that are shown, how many variants are not, and the map that the page opens with."""

    shown: tuple[VariantMaps, ...]
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
    """Return the maps of as many variants as the page has room for, in order of the design."""
    shown: list[VariantMaps] = []
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
        shown.append(VariantMaps(slug, str(variant["title"]), run[1], maps))
    if not shown:
        return None
    role = next((r for r in ("cross", *ROLES) if shown[0].weights(0, r) is not None), "cross")
    first = shown[0].weights(0, role)
    return Gallery(tuple(shown), left_out, 0, role, 0 if first is None else len(first) - 1, 0)


def payload(gallery: Gallery) -> dict[str, Any]:
    """Return the maps as JSON: a byte per weight, tokens as labels, both numbers of each head."""
    return {
        "open": {"probe": gallery.probe, "role": gallery.role, "layer": gallery.layer, "head": gallery.head},
        "probes": [probe.probe["source"] for probe in gallery.shown[0].maps],
        "roles": [role for role in ROLES if any(shown.weights(0, role) is not None for shown in gallery.shown)],
        "variants": [
            {"title": shown.title, "seed": shown.seed, "probes": [_probe(probe) for probe in shown.maps]}
            for shown in gallery.shown
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

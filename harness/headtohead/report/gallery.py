"""Select the attention maps of a report: a run per variant, with a byte per weight."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.study import Analysis
from headtohead.schema.roles import ROLES
from headtohead.storage import states
from headtohead.storage.attention_maps import ProbeMaps, entropy, load_maps, mean_distance

MOST_BYTES = 1_500_000
"""Maximum number of weights in a page, a byte each; the maps of other variants stay in their run directories."""
MOST_VARIANTS = 24


@dataclass(frozen=True)
class VariantMaps:
    """The maps of a variant's first finished seed."""

    slug: str
    title: str
    seed: int
    maps: Sequence[ProbeMaps] = field(repr=False)

    def weights(self, probe: int, role: str) -> NDArray[np.float32] | None:
        """Return the weights ``[layer, head, query, key]`` of a role, or None if the run has no such map."""
        return self.maps[probe].weights.get(role) if probe < len(self.maps) else None


@dataclass(frozen=True)
class Gallery:
    """The maps of a report, the number of omitted variants, and the initially selected map."""

    variants: tuple[VariantMaps, ...]
    num_omitted: int
    probe: int = 0
    role: str = "cross"
    layer: int = 0
    head: int = 0

    @property
    def signed(self) -> str:
        """The titles of the variants with negative weights, comma-separated."""
        return ", ".join(f"“{variant.title}”" for variant in self.variants if variant.maps[0].probe.get("signed"))

    @property
    def notes(self) -> list[str]:
        """A sentence per variant on how its maps are computed if training computes none."""
        return [
            f"“{variant.title}”: {'; '.join(dict.fromkeys(notes.values()))}."
            for variant in self.variants
            if (notes := variant.maps[0].probe.get("map_notes"))
        ]


def shown_run(analysis: Analysis, slug: str) -> tuple[str, int] | None:
    """Return the run and the seed of a variant's first seed with state DONE."""
    rows = analysis.frames.rows(slug)
    runs = zip(rows.index, rows["state"], rows["seed"], strict=True)
    return next(((str(run), int(seed)) for run, state, seed in runs if state == states.DONE), None)


def gallery(analysis: Analysis) -> Gallery | None:
    """Return the maps of the first variants of the design that fit into a page, or None without maps."""
    selected: list[VariantMaps] = []
    remaining, omitted = MOST_BYTES, 0
    for slug, variant in analysis.frames.by_slug.items():
        run = shown_run(analysis, slug) if analysis.frames.trained(slug) == slug else None
        if run is None:
            continue
        if len(selected) >= MOST_VARIANTS or remaining <= 0:
            omitted += 1
            continue
        maps = load_maps(analysis.frames.path(run[0]))
        size = sum(weights.size for probe in maps for weights in probe.weights.values())
        if not maps or (size > remaining and selected):
            omitted += bool(maps)
            continue
        remaining -= size
        selected.append(VariantMaps(slug, variant.title, run[1], maps))
    if not selected:
        return None
    role = next((role for role in ("cross", *ROLES) if selected[0].weights(0, role) is not None), "cross")
    first = selected[0].weights(0, role)
    return Gallery(tuple(selected), omitted, 0, role, 0 if first is None else len(first) - 1, 0)


def payload(gallery: Gallery) -> dict[str, Any]:
    """Return the JSON data of the page's script: a byte per weight, tokens, and entropy and distance of each head."""
    return {
        "open": {"probe": gallery.probe, "role": gallery.role, "layer": gallery.layer, "head": gallery.head},
        "probes": [probe.probe["source"] for probe in gallery.variants[0].maps],
        "roles": [role for role in ROLES if any(variant.weights(0, role) is not None for variant in gallery.variants)],
        "variants": [
            {"title": variant.title, "seed": variant.seed, "probes": [_probe(probe) for probe in variant.maps]}
            for variant in gallery.variants
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
    """Return a byte per weight: 0 to 255, or 1 to 255 around 128 for signed weights."""
    fractions = weights.astype(np.float64) / scale
    levels = fractions * 127 + 128 if (weights < 0).any() else fractions * 255
    return levels.round().clip(0, 255).astype(np.uint8).tobytes()

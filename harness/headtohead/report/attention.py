"""The attention maps of a report: the same head of every variant side by side."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis
from headtohead.figures.heat_map import HeatMap, heat_map_figure
from headtohead.storage import states
from headtohead.storage.attention_maps import ProbeMaps, entropy, load_maps, mean_distance

MAX_BYTES = 1_500_000
"""Maximum number of weights in a page, a byte each; the maps of other variants stay in their run directories."""
MAX_VARIANTS = 12


@dataclass(frozen=True)
class VariantMaps:
    """The maps of a variant's first finished seed."""

    title: str
    seed: int
    maps: Sequence[ProbeMaps] = field(repr=False)


@dataclass(frozen=True)
class Gallery:
    """The maps of the variants that fit into a page, and the number of omitted variants.

    The page opens with the first head of the last layer of ``role``, on the first sentence.
    """

    variants: tuple[VariantMaps, ...]
    num_omitted: int

    @property
    def roles(self) -> list[str]:
        """The roles with maps, in the order of the model."""
        probes = [variant.maps[0] for variant in self.variants]
        known = dict.fromkeys(
            role for probe in probes for role in (*probe.probe["heads"], *probe.weights)
        )
        return [role for role in known if any(role in probe.weights for probe in probes)]

    @property
    def role(self) -> str:
        """The initially selected role."""
        shown = self.variants[0].maps[0].weights
        return next((role for role in ("cross", *self.roles) if role in shown), "cross")

    @property
    def layer(self) -> int:
        """The initially selected layer."""
        return max(len(self.variants[0].maps[0].weights.get(self.role, ())) - 1, 0)

    @property
    def notes(self) -> list[str]:
        """Sentences on maps with negative weights, and on maps that training does not compute."""
        probes = {f"“{variant.title}”": variant.maps[0].probe for variant in self.variants}
        signed = ", ".join(title for title, probe in probes.items() if probe.get("signed"))
        sentences = (
            [f"Negative weights of {signed} have the other colour, full at −1."] if signed else []
        )
        notes = {title: own for title, probe in probes.items() if (own := probe.get("map_notes"))}
        return sentences + [
            f"{title}: {'; '.join(dict.fromkeys(own.values()))}." for title, own in notes.items()
        ]


def shown_run(analysis: Analysis, slug: str) -> tuple[str, int] | None:
    """Return the run and the seed of a variant's first seed with state DONE; None for a variant that equals another."""
    rows = analysis.frames.rows(slug)
    done = rows[rows["state"] == states.DONE]
    if done.empty or analysis.frames.trained(slug) != slug:
        return None
    return str(done.index[0]), int(done["seed"].iloc[0])


def gallery(analysis: Analysis) -> Gallery | None:
    """Return the maps of the first variants of the design that fit into a page, or None without maps."""
    selected: list[VariantMaps] = []
    remaining, omitted = MAX_BYTES, 0
    for slug, variant in analysis.frames.by_slug.items():
        if (run := shown_run(analysis, slug)) is None:
            continue
        if len(selected) >= MAX_VARIANTS or remaining <= 0:
            omitted += 1
            continue
        maps = load_maps(analysis.frames.folders[run[0]])
        size = sum(weights.size for probe in maps for weights in probe.weights.values())
        if not size or (size > remaining and selected):
            omitted += bool(maps)
            continue
        remaining -= size
        selected.append(VariantMaps(variant.title, run[1], maps))
    return Gallery(tuple(selected), omitted) if selected else None


def attention_figure(gallery: Gallery) -> Figure:
    """Draw the initially selected head of every variant side by side."""
    maps = []
    for variant in gallery.variants:
        probe = variant.maps[0]
        weights = probe.weights.get(gallery.role)
        if weights is not None and gallery.layer < len(weights):
            title = f"{variant.title} (seed {variant.seed})"
            maps.append(HeatMap(weights[gallery.layer, 0], *probe.tokens(gallery.role), title))
    return heat_map_figure(maps)


def payload(gallery: Gallery) -> dict[str, Any]:
    """Return the JSON data of the page's script: a byte per weight, tokens, and entropy and distance of each head."""
    return {
        "open": {"probe": 0, "role": gallery.role, "layer": gallery.layer, "head": 0},
        "probes": [
            probe.probe["source"] or probe.probe["target"] or ""
            for probe in gallery.variants[0].maps
        ],
        "roles": gallery.roles,
        "variants": [
            {
                "title": variant.title,
                "seed": variant.seed,
                "probes": [_probe(probe) for probe in variant.maps],
            }
            for variant in gallery.variants
        ],
    }


def _probe(probe: ProbeMaps) -> dict[str, Any]:
    roles = {}
    for role, weights in probe.weights.items():
        scale, signed = float(np.abs(weights).max(initial=0.0)) or 1.0, bool((weights < 0).any())
        # A byte per weight: 0 to 255, or 1 to 255 around 128 for signed weights.
        levels = weights.astype(np.float64) / scale * (127 if signed else 255) + 128 * signed
        content = levels.round().clip(0, 255).astype(np.uint8).tobytes()
        roles[role] = {
            "shape": list(weights.shape),
            "scale": round(scale, 6),
            "signed": signed,
            "entropy": np.round(np.nan_to_num(entropy(weights)), 2).tolist(),
            "distance": np.round(np.nan_to_num(mean_distance(weights)), 2).tolist(),
            "bytes": base64.b64encode(content).decode("ascii"),
        }
    tokens = {side: list(probe.probe[f"{side}_tokens"]) for side in ("source", "target")}  # type: ignore[literal-required]
    return tokens | {"cross": probe.tokens("cross")[1], "roles": roles}

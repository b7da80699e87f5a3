"""The attention maps of a report: the same head of every variant side by side."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from headtohead.analysis.study import Analysis
from headtohead.figures.heat_map import HeatMap, heat_map_figure
from headtohead.storage import states
from headtohead.storage.attention_maps import ProbeMaps, entropy, load_maps, mean_distance

MAX_BYTES = 1_500_000
"""Maximum number of weights in a page, a byte each; the maps of other variants stay in their run directories."""
MAX_VARIANTS = 12

NEGATIVE_WEIGHTS = "Negative weights of {variants} have the other colour, full at −1."
NOTES = "“{variant}”: {notes}."


@dataclass(frozen=True)
class VariantMaps:
    """The maps of a variant's first finished seed, one for each probe sentence; at least one."""

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
        recorded: dict[str, bool] = {}
        for variant in self.variants:
            probe = variant.maps[0]
            for role in (*probe.probe["heads"], *probe.weights):
                recorded[role] = recorded.get(role, False) or role in probe.weights
        return [role for role, has_maps in recorded.items() if has_maps]

    @property
    def role(self) -> str:
        """The initially selected role."""
        weights = self.variants[0].maps[0].weights
        for role in ("cross", *self.roles):
            if role in weights:
                return role
        return "cross"

    @property
    def layer(self) -> int:
        """The initially selected layer."""
        layers = self.variants[0].maps[0].weights.get(self.role, ())
        return max(len(layers) - 1, 0)

    @property
    def notes(self) -> list[str]:
        """A sentence on the variants with negative weights, if any, and one per variant with notes on its maps.

        Notes and signs are those of the first probe sentence: they depend on the model, so all sentences have the same.
        Equal notes of several roles of a variant are stated once.
        """
        sentences = []
        signed = self._signed_variants()
        if signed:
            sentences.append(NEGATIVE_WEIGHTS.format(variants=", ".join(signed)))
        for variant in self.variants:
            notes_by_role = variant.maps[0].probe.get("map_notes")
            if notes_by_role:
                distinct = dict.fromkeys(notes_by_role.values())
                notes = "; ".join(distinct)
                sentences.append(NOTES.format(variant=variant.title, notes=notes))
        return sentences

    def _signed_variants(self) -> list[str]:
        """Return the quoted titles of the variants whose maps can have negative weights."""
        titles = []
        for variant in self.variants:
            if variant.maps[0].probe.get("signed"):
                titles.append(f"“{variant.title}”")
        return titles


def shown_run(analysis: Analysis, slug: str) -> tuple[str, int] | None:
    """Return the run and the seed of a variant's first seed with state DONE.

    None without such a run, and for a variant that equals another one.

    Raises:
        KeyError: If the study has no variant ``slug``.
    """
    rows = analysis.frames.rows(slug)
    done = rows[rows["state"] == states.DONE]
    if done.empty or analysis.frames.trained(slug) != slug:
        return None
    return str(done.index[0]), int(done["seed"].iloc[0])


def gallery(analysis: Analysis) -> Gallery | None:
    """Return the maps of the first variants of the design that fit into a page, or None without maps.

    The first variant with maps is always in the page. Variants without a finished run of their own do not count as
    omitted. Variants without maps count as omitted only if the page is already full: their maps are not read.

    Raises:
        HeadToHeadError: If recorded maps cannot be read or have changed since they were written.
    """
    selected: list[VariantMaps] = []
    omitted = 0
    remaining = MAX_BYTES
    for slug, variant in analysis.frames.by_slug.items():
        shown = shown_run(analysis, slug)
        if shown is None:
            continue
        is_full = len(selected) >= MAX_VARIANTS or remaining <= 0
        if is_full:
            omitted += 1
            continue
        run, seed = shown
        maps = load_maps(analysis.frames.folders[run])
        size = sum(weights.size for probe in maps for weights in probe.weights.values())
        is_too_large = size > remaining and len(selected) > 0
        if size and not is_too_large:
            remaining -= size
            selected.append(VariantMaps(variant.title, seed, maps))
        elif maps:
            omitted += 1
    if not selected:
        return None
    return Gallery(tuple(selected), omitted)


def attention_figure(gallery: Gallery) -> Figure:
    """Draw the initially selected head of every variant side by side, on the first sentence.

    Variants without this role or layer are left out. ``gallery`` has at least one variant.
    """
    maps = []
    for variant in gallery.variants:
        probe = variant.maps[0]
        weights = probe.weights.get(gallery.role)
        if weights is not None and gallery.layer < len(weights):
            title = f"{variant.title} (seed {variant.seed})"
            queries, keys = probe.tokens(gallery.role)
            maps.append(HeatMap(weights[gallery.layer, 0], queries, keys, title))
    return heat_map_figure(maps)


def payload(gallery: Gallery) -> dict[str, Any]:
    """Return the JSON data of the page's script: the selected head, the sentences, and the maps of each variant.

    The sentences are the sources, or the targets of probes without a source, of the first variant.
    """
    sentences = []
    for probe in gallery.variants[0].maps:
        sentences.append(probe.probe["source"] or probe.probe["target"] or "")
    variants = []
    for variant in gallery.variants:
        probes = [_probe_data(maps) for maps in variant.maps]
        variants.append({"title": variant.title, "seed": variant.seed, "probes": probes})
    return {
        "open": {"probe": 0, "role": gallery.role, "layer": gallery.layer, "head": 0},
        "probes": sentences,
        "roles": gallery.roles,
        "variants": variants,
    }


def _probe_data(maps: ProbeMaps) -> dict[str, Any]:
    """Return the JSON data of the maps of one sentence: its tokens, and the weights of each role."""
    return {
        "source": list(maps.probe["source_tokens"]),
        "target": list(maps.probe["target_tokens"]),
        "cross": maps.tokens("cross")[1],
        "roles": {role: _weights_data(weights) for role, weights in maps.weights.items()},
    }


def _weights_data(weights: NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Return the JSON data of the maps of a role: shape, a byte per weight with its scale, and numbers of each head.

    A byte of 255 is the weight ``scale``, the largest absolute weight (1 if all are 0). Without negative weights, 0 is
    no weight; with negative weights (``signed``), 128 is no weight and 1 is ``-scale``. Entropy in nats and mean
    distance in tokens are 0 for a head without weights.

    Args:
        weights: ``[layer, head, query, key]``, finite.
    """
    scale = float(np.abs(weights).max(initial=0.0)) or 1.0
    is_signed = bool((weights < 0).any())
    fractions = weights.astype(np.float64) / scale
    if is_signed:
        levels = fractions * 127 + 128
    else:
        levels = fractions * 255
    content = levels.round().clip(0, 255).astype(np.uint8).tobytes()
    entropies = np.nan_to_num(entropy(weights))
    distances = np.nan_to_num(mean_distance(weights))
    return {
        "shape": list(weights.shape),
        "scale": round(scale, 6),
        "signed": is_signed,
        "entropy": np.round(entropies, 2).tolist(),
        "distance": np.round(distances, 2).tolist(),
        "bytes": base64.b64encode(content).decode("ascii"),
    }

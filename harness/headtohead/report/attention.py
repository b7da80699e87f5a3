"""The attention maps of a report: the same head of every variant side by side."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.study import Analysis
from headtohead.config.labels import joined
from headtohead.data.byte_alphabet import label_of
from headtohead.storage import states
from headtohead.storage.attention_maps import ProbeMaps, Sentence, entropy, load_maps, mean_distance
from headtohead.storage.experiment import examples_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_BYTES = 1_500_000
"""Maximum number of weights in a page, a byte each; the maps of other variants stay in their run directories."""
MAX_VARIANTS = 12

CAPTION = (
    "Sentence “{sentence}”, {role}, layer {layer}, head {head}, one seed of each variant. Rows are queries, columns "
    "keys: a dark cell is a key that the query attends to. Full colour is a weight of {limit}, in every map."
)
"""The caption of the maps, whose slots the script of the page fills, too."""

NEGATIVE_WEIGHTS = "Negative weights of {variants} have the other colour."
NOTES = "“{variant}”: {notes}."


@dataclass(frozen=True)
class VariantMaps:
    """The maps of a variant's first finished seed, one for each probe sentence; at least one."""

    title: str
    seed: int
    maps: Sequence[ProbeMaps] = field(repr=False)

    def maps_of(self, sentence: Sentence) -> ProbeMaps | None:
        """Return the maps of a probe sentence, wherever it stands among those of the run; None without it."""
        for probe in self.maps:
            if probe.sentence == sentence:
                return probe
        return None


@dataclass(frozen=True)
class Gallery:
    """The maps of the variants that fit into a page, and the number of omitted variants.

    The page opens with the first head of the last layer of ``role``, on the first sentence.

    Attributes:
        variants: The maps of each variant, best variant first.
        num_omitted: Number of variants with maps that are not in the page.
        is_text: Whether tokens are in the alphabet of bytes, which labels do not show.
    """

    variants: tuple[VariantMaps, ...]
    num_omitted: int
    is_text: bool = False

    @property
    def roles(self) -> list[str]:
        """The roles with maps, in the order of the model."""
        recorded: dict[str, bool] = {}
        for variant in self.variants:
            probe = variant.maps[0]
            in_order_of_model = probe.probe["heads"]
            for role in (*in_order_of_model, *probe.weights):
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
    def limit(self) -> float:
        """The largest absolute weight of the maps that the page opens with, which has the full colour."""
        largest = 0.0
        for variant in self.variants:
            probe = variant.maps_of(self.first_sentence)
            weights = probe.weights.get(self.role, ()) if probe else ()
            if self.layer < len(weights):
                largest = max(largest, float(np.abs(weights[self.layer][0]).max(initial=0.0)))
        return largest or 1.0

    @property
    def first_sentence(self) -> Sentence:
        """Source and target of the sentence that the page opens with: the first one of the first variant."""
        return self.variants[0].maps[0].sentence

    @property
    def sentence(self) -> str:
        """The sentence that the page opens with, on one line."""
        probe = self.variants[0].maps[0].probe
        return " ".join((probe["source"] or probe["target"] or "").split())

    def labels(self, tokens: Sequence[str]) -> list[str]:
        """Return tokens as labels."""
        if not self.is_text:
            return list(tokens)
        return [label_of(token) for token in tokens]

    @property
    def notes(self) -> list[str]:
        """A sentence on the variants with negative weights, if any, and one per variant with notes on its maps.

        Notes and signs are those of the first probe sentence: they depend on the model, so all sentences have the same.
        Equal notes of several roles of a variant are stated once.
        """
        sentences = []
        signed = self._signed_variants()
        if signed:
            sentences.append(NEGATIVE_WEIGHTS.format(variants=joined(signed)))
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
    """Return the run and the seed of a variant's first seed with state DONE; rows are in the order of the seeds.

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
    """Return the maps of the variants that fit into a page, or None without maps.

    The variants of `Scores.leading`, the baseline among them, are tried first, then the others in their order. The
    first variant with maps is always in the page; the maps of each later one must fit into what remains of `MAX_BYTES`,
    else it counts as omitted. Once the page is full, maps are not read: each further variant with a finished run of its
    own counts as omitted, also if it has no maps.

    Raises:
        HeadToHeadError: If recorded maps cannot be read or have changed since they were written.
    """
    selected: list[VariantMaps] = []
    num_omitted = 0
    remaining = MAX_BYTES
    leading = analysis.leading(MAX_VARIANTS)
    others = [slug for slug in analysis.order if slug not in leading]
    for slug in [*leading, *others]:
        shown = shown_run(analysis, slug)
        if shown is None:
            continue
        is_full = len(selected) == MAX_VARIANTS or remaining <= 0
        if is_full:
            num_omitted += 1
            continue
        run, seed = shown
        maps = load_maps(analysis.frames.folders[run])
        if not maps:
            continue
        size = _num_weights(maps)
        fits = size <= remaining or not selected
        if size == 0 or not fits:
            num_omitted += 1
            continue
        remaining -= size
        selected.append(VariantMaps(analysis.frames.by_slug[slug].title, seed, maps))
    if not selected:
        return None
    is_text = examples_of(analysis.frames.record.data) == "blocks"
    return Gallery(tuple(selected), num_omitted, is_text)


def _num_weights(maps: Sequence[ProbeMaps]) -> int:
    """Return the number of weights of all roles of all probe sentences."""
    return sum(weights.size for probe in maps for weights in probe.weights.values())


def attention_figure(gallery: Gallery) -> Figure:
    """Draw the initially selected head of every variant side by side, on the first sentence.

    Variants without this sentence, role or layer are left out. ``gallery`` has at least one variant.
    """
    from headtohead.figures.heat_map import HeatMap, heat_map_figure

    maps = []
    for variant in gallery.variants:
        probe = variant.maps_of(gallery.first_sentence)
        if probe is None:
            continue
        weights = probe.weights.get(gallery.role)
        if weights is not None and gallery.layer < len(weights):
            title = f"{variant.title} (seed {variant.seed})"
            queries, keys = map(gallery.labels, probe.tokens(gallery.role))
            maps.append(HeatMap(weights[gallery.layer, 0], queries, keys, title))
    return heat_map_figure(maps, limit=gallery.limit)


def caption(gallery: Gallery) -> str:
    """Return the caption of the maps that the page opens with: head 0 of a layer, of one sentence.

    Raises:
        HeadToHeadError: If the file of the maps is damaged.
    """
    return CAPTION.format(
        sentence=gallery.sentence,
        role=gallery.role,
        layer=gallery.layer,
        head=0,
        limit=f"{gallery.limit:.2f}",
    )


def payload(gallery: Gallery) -> dict[str, Any]:
    """Return the JSON data of the page's script: the selected head, the sentences, and the maps of each variant.

    The sentences are the sources, or the targets of probes without a source, of all variants. Those of the first
    variant come first. The maps of every variant are in the order of the sentences; a sentence that a run did not
    record has no maps.
    """
    texts: dict[Sentence, str] = {}
    for variant in gallery.variants:
        for maps in variant.maps:
            texts.setdefault(maps.sentence, maps.probe["source"] or maps.probe["target"] or "")
    variants = []
    for variant in gallery.variants:
        probes = [_probe_data(gallery, variant.maps_of(sentence)) for sentence in texts]
        variants.append({"title": variant.title, "seed": variant.seed, "probes": probes})
    return {
        "open": {"probe": 0, "role": gallery.role, "layer": gallery.layer, "head": 0},
        "probes": list(texts.values()),
        "roles": gallery.roles,
        "caption": CAPTION,
        "variants": variants,
    }


def _probe_data(gallery: Gallery, maps: ProbeMaps | None) -> dict[str, Any]:
    """Return the JSON data of the maps of one sentence: its tokens, and the weights of each role; None has neither."""
    if maps is None:
        return {"source": [], "target": [], "cross": [], "roles": {}}
    return {
        "source": gallery.labels(maps.probe["source_tokens"]),
        "target": gallery.labels(maps.probe["target_tokens"]),
        "cross": gallery.labels(maps.tokens("cross")[1]),
        "roles": {role: _weights_data(weights) for role, weights in maps.weights.items()},
    }


def _weights_data(weights: NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Return the JSON data of the maps of a role: shape, a byte per weight, entropy and mean distance of each head.

    ``scale`` is the largest absolute weight, 1 if all are 0; the page gets it with six decimals. The byte of ``scale``
    is 255. The byte of a weight of 0 is 0, or 128 if there are negative weights (``signed``), of which that of
    ``-scale`` is 1. Entropy, in nats, and distance, in tokens, are 0 for a head whose weights are all 0.

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

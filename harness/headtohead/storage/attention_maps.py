"""Attention maps as arrays: reading them back, and two numbers that describe a head."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headtohead.errors import HeadToHeadError

Floats = NDArray[np.float64]


def entropy(weights: ArrayLike) -> Floats:
    """Return how widely each head spreads its attention, in nats: ``[..., query, key] -> [...]``.

    The entropy of a row is ``-sum(p log p)`` with ``p`` the row's absolute weights divided by
    their sum (softmax rows already sum to 1; signed maps are described by their magnitudes). A
    head's entropy is the mean over its rows; rows without any weight are left out, and a head that
    has no other rows gets NaN. 0 is one key per query, ``log(keys)`` is an even spread.
    """
    shares, live = _shares(weights)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return _mean_over_queries(-(shares * logs).sum(axis=-1), live)


def mean_distance(weights: ArrayLike) -> Floats:
    """Return how far away each head looks, in tokens: ``[..., query, key] -> [...]``.

    The mean over queries ``i`` of ``sum_j p[i, j] * abs(i - j)``, with rows treated as in
    `entropy`. In cross-attention ``i`` and ``j`` count from the start of their own sentences.
    """
    shares, live = _shares(weights)
    queries, keys = shares.shape[-2:]
    distance = np.abs(np.arange(queries)[:, None] - np.arange(keys)[None, :])
    return _mean_over_queries((shares * distance).sum(axis=-1), live)


@dataclass(frozen=True)
class HeadStatistics:
    """What `entropy` and `mean_distance` say of every head, shaped as the maps' leading axes."""

    entropy: Floats
    distance: Floats


def head_statistics(weights: ArrayLike) -> HeadStatistics:
    """Return both numbers for maps ``[..., query, key]``."""
    return HeadStatistics(entropy(weights), mean_distance(weights))


@dataclass(frozen=True)
class ProbeMaps:
    """The maps of one probe sentence in one run.

    ``weights`` holds ``[layer, head, query, key]`` by role (encoder, decoder, cross). A report
    looks at few of the maps that a study records, so they stay on disk until someone asks.
    """

    index: int
    probe: Mapping[str, Any]
    file: Path

    @cached_property
    def weights(self) -> dict[str, NDArray[np.float32]]:
        """The maps by role; read at first use.

        Raises:
            HeadToHeadError: If the file of maps is damaged.
        """
        from safetensors import SafetensorError, safe_open

        prefix = f"{self.index}/"
        try:
            with safe_open(self.file, framework="numpy") as tensors:
                return {
                    name.removeprefix(prefix): tensors.get_tensor(name)
                    for name in tensors.keys()  # noqa: SIM118  (not a mapping)
                    if name.startswith(prefix)
                }
        except SafetensorError as error:
            raise HeadToHeadError(
                f"{self.file}: not a readable safetensors file ({error}); remove the run and run the experiment again"
            ) from error

    def tokens(self, role: str) -> tuple[list[str], list[str]]:
        """Return the labels of queries and keys in ``role``."""
        source, target = list(self.probe["source_tokens"]), list(self.probe["target_tokens"])
        queries = source if role == "encoder" else target
        keys = target if role == "decoder" else source
        return queries, list(self.probe.get("cross_tokens", keys)) if role == "cross" else keys


def load_maps(run: Path) -> list[ProbeMaps]:
    """Return the maps recorded in a run directory, one entry per probe; empty where none were."""
    listing, file = run / "attention" / "probes.json", run / "attention" / "maps.safetensors"
    if not listing.is_file() or not file.is_file():
        return []
    try:
        probes = json.loads(listing.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise HeadToHeadError(f"{listing}: not valid JSON ({error})") from error
    return [ProbeMaps(index, probe, file) for index, probe in enumerate(probes)]


def contact_sheet(weights: ArrayLike, cell: int = 12, gap: int = 4) -> NDArray[np.uint8]:
    """Return a grey picture of maps ``[layer, head, query, key]``: layers down, heads across.

    White is no weight and black the largest absolute weight of the sheet; ``cell`` is the size of
    one weight and ``gap`` the space between maps, in pixels. Nothing is interpolated.
    """
    maps = np.abs(np.nan_to_num(np.asarray(weights, dtype=np.float64)))
    layers, heads, queries, keys = maps.shape
    height, width = queries * cell, keys * cell
    sheet = np.full((layers * (height + gap) - gap, heads * (width + gap) - gap), 255, dtype=np.uint8)
    ink = 255.0 / max(float(maps.max(initial=0.0)), 1e-12)
    for layer in range(layers):
        for head in range(heads):
            pixels = (255.0 - maps[layer, head] * ink).round().clip(0, 255).astype(np.uint8)
            top, left = layer * (height + gap), head * (width + gap)
            sheet[top : top + height, left : left + width] = np.kron(pixels, np.ones((cell, cell), dtype=np.uint8))
    return sheet


def _shares(weights: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    magnitudes = np.abs(np.asarray(weights, dtype=np.float64))
    totals = magnitudes.sum(axis=-1, keepdims=True)
    live = totals[..., 0] > 0
    return magnitudes / np.where(totals > 0, totals, 1.0), live


def _mean_over_queries(rows: Floats, live: NDArray[np.bool_]) -> Floats:
    counts = live.sum(axis=-1)
    means = np.where(live, rows, 0.0).sum(axis=-1) / np.maximum(counts, 1)
    return np.asarray(np.where(counts > 0, means, np.nan))

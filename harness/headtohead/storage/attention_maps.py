"""Recorded attention maps, and two statistics of a head: entropy and mean distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NotRequired

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import TypedDict

from headtohead.errors import HeadToHeadError
from headtohead.schema.roles import ROLES, Role
from headtohead.storage.record import NonNegative
from headtohead.storage.run import MAPS, PROBES
from headtohead.storage.run_directory import RunDirectory

Floats = NDArray[np.float64]
Sentence = tuple[str, str | None]
"""Source and target of a probe sentence, by which the maps of several runs are paired."""


def entropy(weights: ArrayLike) -> Floats:
    """Return the entropy of each head's attention in nats: ``[..., query, key] -> [...]``.

    The entropy of a row is ``-sum(p log p)``, where ``p`` are the row's absolute weights divided by their sum
    (softmax rows already sum to 1; signed weights count by magnitude). A head's entropy is the mean over its rows.
    Rows of zeros are skipped; a head with only such rows gets NaN. 0 means a single key per query, ``log(keys)``
    a uniform distribution.
    """
    shares, nonzero = _shares(weights)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return _mean_over_queries(-(shares * logs).sum(axis=-1), nonzero)


def mean_distance(weights: ArrayLike) -> Floats:
    """Return the mean attention distance of each head in tokens: ``[..., query, key] -> [...]``.

    The mean over queries ``i`` of ``sum_j p[i, j] * abs(i - j)``, with ``p`` and
    skipped rows as in `entropy`. In cross-attention, ``i`` is a target position and ``j`` a source position.
    """
    shares, nonzero = _shares(weights)
    queries, keys = shares.shape[-2:]
    distance = np.abs(np.arange(queries)[:, None] - np.arange(keys)[None, :])
    return _mean_over_queries((shares * distance).sum(axis=-1), nonzero)


class HeadNumbers(TypedDict):
    """Entropy in nats and mean distance in tokens of a head; None for a head without weights."""

    entropy: NonNegative | None
    distance: NonNegative | None


class ProbeRecord(TypedDict):
    """A probe sentence in ``probes.json``."""

    source: str
    target: str | None
    target_from: str
    source_tokens: list[str]
    target_tokens: list[str]
    cross_tokens: NotRequired[list[str]]
    heads: dict[Role, list[list[HeadNumbers]]]
    weights: NotRequired[dict[Role, Literal["distribution", "positive", "signed"]]]
    signed: bool
    map_notes: NotRequired[dict[Role, str]]


@dataclass(frozen=True)
class ProbeMaps:
    """The attention maps of a probe sentence in a run, loaded at first access.

    ``weights`` holds ``[layer, head, query, key]`` by role (encoder, decoder, cross). Loading is lazy because a
    report uses few of the recorded maps.
    """

    index: int
    probe: ProbeRecord
    file: Path

    @cached_property
    def weights(self) -> dict[str, NDArray[np.float32]]:
        """The maps by role."""
        from safetensors import SafetensorError, safe_open

        prefix = f"{self.index}/"
        weights = {}
        try:
            with safe_open(self.file, framework="numpy") as tensors:
                for name in tensors.keys():  # noqa: SIM118  (not a mapping)
                    if name.startswith(prefix):
                        role = name.removeprefix(prefix)
                        self._check(name, role, tensors.get_slice(name))
                        weights[role] = tensors.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise self._damaged(f"not a readable safetensors file ({error})") from error
        for role, maps in weights.items():
            if not np.isfinite(maps).all():
                raise self._damaged(f"tensor '{prefix}{role}' has values that are not finite")
        return weights

    def _check(self, name: str, role: str, tensor: Any) -> None:
        """Raise HeadToHeadError if a tensor has another type or shape than the maps of its role."""
        kind = tensor.get_dtype()
        shape = list(tensor.get_shape())
        expected = None
        if role in ROLES:
            expected = [len(tokens) for tokens in self.tokens(role)]
        if kind != "F32" or len(shape) != 4 or shape[2:] != expected or 0 in shape:
            raise self._damaged(
                f"tensor '{name}' is {kind} {shape}, expected F32 [layer, head, query, key] of a role, "
                f"with {expected} tokens"
            )

    def _damaged(self, reason: str) -> HeadToHeadError:
        return HeadToHeadError(
            f"cannot read '{self.file}': {reason}; remove the run and run the experiment again"
        )

    @property
    def sentence(self) -> Sentence:
        """Source and target of the sentence.

        The target is None if it depends on the run or on its data, unless there is no source, as in a text.
        """
        source = self.probe["source"]
        is_fixed = self.probe["target_from"] == "file" or not source
        return source, self.probe["target"] if is_fixed else None

    def tokens(self, role: str) -> tuple[list[str], list[str]]:
        """Return the query tokens and the key tokens of ``role``."""
        return map_tokens(self.probe, role)


def map_tokens(record: Mapping[str, Any], role: str) -> tuple[list[str], list[str]]:
    """Return the query tokens and the key tokens of a role of a sentence's maps."""
    source = list(record["source_tokens"])
    target = list(record["target_tokens"])
    if role == "encoder":
        return source, source
    if role == "decoder":
        return target, target
    return target, list(record.get("cross_tokens", source))


def load_maps(run: Path) -> list[ProbeMaps]:
    """Return the maps of each probe sentence in a run directory; empty if none were recorded."""
    directory = RunDirectory(run)
    if not directory.has(PROBES):
        return []
    file = directory.verified(MAPS)
    return [ProbeMaps(index, probe, file) for index, probe in enumerate(read_probes(run))]


def read_probes(run: Path) -> list[ProbeRecord]:
    """Return the records of a run's probe sentences; empty if none were recorded."""
    directory = RunDirectory(run)
    if not directory.has(PROBES):
        return []
    return directory.verified_record(list[ProbeRecord], PROBES)


def _shares(weights: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    magnitudes = np.abs(np.asarray(weights, dtype=np.float64))
    totals = magnitudes.sum(axis=-1, keepdims=True)
    nonzero = totals[..., 0] > 0
    return magnitudes / np.where(totals > 0, totals, 1.0), nonzero


def _mean_over_queries(rows: Floats, nonzero: NDArray[np.bool_]) -> Floats:
    counts = nonzero.sum(axis=-1)
    means = np.where(nonzero, rows, 0.0).sum(axis=-1) / np.maximum(counts, 1)
    return np.asarray(np.where(counts > 0, means, np.nan))

"""Attention maps of probe sentences, on the explicit path, with its difference from the fused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor

from headtohead.analysis.attention_maps import head_statistics
from headtohead.data import PreparedData
from headtohead.data.vocabulary import PAD, SOS
from headtohead.families.entry import ROLES
from headtohead.model.decoding import greedy
from headtohead.model.transformer import Transformer
from headtohead.runs import files


@dataclass(frozen=True)
class ProbeMaps:
    """The maps of one sentence: float32 ``[layer, head, query, key]`` by role, and their labels."""

    record: dict[str, Any]
    weights: Mapping[str, np.ndarray]


@torch.no_grad()
def probe_maps(
    model: Transformer, member: int, data: PreparedData, source: str, target: str | None,
    max_length: int, target_from: str = "reference",
) -> ProbeMaps:  # fmt: skip
    """Record every head's weights for one sentence.

    Args:
        model: A stack; all its members compute, one is read.
        member: The one that is read.
        data: For the vocabularies.
        source: Raw text.
        target: Raw text that the decoder reads; None lets the run translate.
        max_length: Most words of such a translation.
        target_from: How the record names a given target.
    """
    model.eval()
    device = next(model.parameters()).device
    source_ids = torch.tensor(data.tokenise(source, "source"), device=device)
    source_ids = source_ids.expand(model.members, 1, -1)
    source_lengths = torch.full((model.members, 1), source_ids.shape[-1], device=device)
    if target is None:
        target_from = "translation"
        written = greedy(model, source_ids, source_lengths, max_length)[member, 0]
        ids = [SOS, *(word for word in written.tolist() if word != PAD)]
    else:
        ids = data.tokenise(target, "target")[:-1]
    reads = torch.tensor(ids, device=device).expand(model.members, 1, -1)
    read_lengths = torch.full_like(source_lengths, len(ids))
    fused = model(source_ids, source_lengths, reads, read_lengths)[member]
    recorded: dict[str, list[Tensor]] = {role: [] for role in ROLES}

    def observe(role: str, layer: int, name: str, value: Tensor) -> None:
        if name == "weights":
            recorded[role].append(value[member, 0])

    memory = model.encode(source_ids, source_lengths, observe)
    hidden = model.decode(reads, read_lengths, memory, source_lengths, observe)
    difference = float((model.project(hidden)[member] - fused).abs().max())
    weights = {role: torch.stack(layers).float().cpu().numpy() for role, layers in recorded.items()}
    words = data.target_vocabulary.words
    record = {
        "source": source,
        "target": target,
        "target_from": target_from,
        "source_tokens": [data.source_vocabulary.words[i] for i in source_ids[0, 0].tolist()],
        "target_tokens": [words[i] for i in ids],
        "heads": {role: _describe(maps) for role, maps in weights.items()},
        "signed": any(bool((maps < 0).any()) for maps in weights.values()),
        "fused_difference": difference,
    }
    return ProbeMaps(record, weights)


def write_maps(folder: Path, maps: Sequence[ProbeMaps]) -> None:
    """Write arrays and their labels into a run's ``attention`` folder."""
    folder.mkdir(exist_ok=True)
    arrays = {
        f"{index}/{role}": np.ascontiguousarray(weights)
        for index, probe in enumerate(maps)
        for role, weights in probe.weights.items()
    }
    files.replace(folder / "maps.safetensors", lambda path: save_file(arrays, path))
    files.write_json(folder / "probes.json", [probe.record for probe in maps])


def summary(maps: Sequence[ProbeMaps]) -> dict[str, float]:
    """Return means over probes, layers and heads, and the largest fused difference."""
    metrics: dict[str, float] = {}
    for role in ROLES:
        heads = [head for probe in maps for layer in probe.record["heads"][role] for head in layer]
        for name in ("entropy", "distance"):
            values = [head[name] for head in heads if head[name] is not None]
            if values:
                metrics[f"attention/{role}/{name}"] = math.fsum(values) / len(values)
    if maps:
        differences = [probe.record["fused_difference"] for probe in maps]
        metrics["attention/fused_difference"] = max(differences)
    return metrics


def _describe(maps: np.ndarray) -> list[list[dict[str, float | None]]]:
    statistics = head_statistics(maps)
    return [
        [
            {"entropy": _number(entropy), "distance": _number(distance)}
            for entropy, distance in zip(entropies, distances, strict=True)
        ]
        for entropies, distances in zip(statistics.entropy, statistics.distance, strict=True)
    ]


def _number(value: float) -> float | None:
    """JSON has no NaN; a head without any weight has no entropy."""
    return None if math.isnan(value) else float(value)

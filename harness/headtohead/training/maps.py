"""Attention maps of probe sentences, computed on the explicit path."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor

from headtohead import files
from headtohead.data import PreparedData
from headtohead.errors import HeadToHeadError
from headtohead.model.decoding import Ends, greedy
from headtohead.model.precision import matmul_precision
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.storage.attention_maps import entropy, mean_distance

WEIGHTS = ("distribution", "positive", "signed")
"""Kinds of attention weights. Layers with several kinds are recorded as the last of them."""


@dataclass(frozen=True)
class SentenceMaps:
    """Attention maps of a sentence: float32 ``[layer, head, query, key]`` by role, with their labels."""

    record: dict[str, Any]
    weights: Mapping[str, np.ndarray]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{role} {list(maps.shape)}" for role, maps in self.weights.items())
        return f"SentenceMaps({self.record['source']!r}: {shapes})"

    def _repr_html_(self) -> str:
        from headtohead.report.notebook import maps_html  # loads matplotlib

        return maps_html(self)


@torch.no_grad()
def probe_maps(
    model: Transformer,
    data: PreparedData,
    source: str,
    target: str | None,
    max_length: int,
    target_from: str = "reference",
) -> list[SentenceMaps]:
    """Return the attention weights of all heads for a source and a target, by member.

    Without a target, each member reads its own translation.
    """
    model.eval()
    device = next(model.parameters()).device
    source_ids = torch.tensor(data.tokenise(source, "source"), dtype=torch.long, device=device)
    source_ids = source_ids.expand(model.members, 1, -1)
    source_lengths = torch.full((model.members, 1), source_ids.shape[-1], device=device)
    if target is None:
        target_from = "translation"
        inputs = own_translations(model, data, source_ids, source_lengths, max_length)
    else:
        inputs = [decoder_input(model, data, data.tokenise(target, "target"))] * model.members
    found: dict[int, SentenceMaps] = {}
    for ids in map(list, dict.fromkeys(map(tuple, inputs))):
        weights = _weights(model, source_ids, source_lengths, ids)
        for member in (member for member, own in enumerate(inputs) if own == ids):
            own_weights = {role: maps[:, member] for role, maps in weights.items()}
            record = _record(model, data, source_ids[0, 0].tolist(), ids, own_weights)
            record |= {"source": source, "target": target, "target_from": target_from}
            found[member] = SentenceMaps(record, own_weights)
    return [found[member] for member in range(model.members)]


def decoder_input(model: Transformer, data: PreparedData, ids: list[int]) -> list[int]:
    """Return the decoder input of the ids of a target: without the last token if it is a label only.

    A text has no end, and a single token no next token to predict, so all their tokens are inputs.
    """
    if data.tokenisers["target"].unit.is_text or not model.config.quirks.shift_targets:
        return ids
    return ids[:-1] or ids


def _weights(
    model: Transformer, source_ids: Tensor, source_lengths: Tensor, ids: list[int]
) -> dict[str, np.ndarray]:
    """Return the weights by role, ``[layer, member, head, query, key]``."""
    decoder_input_ids = torch.tensor(ids, device=source_ids.device).expand(model.members, 1, -1)
    read_lengths = torch.full_like(source_lengths, len(ids))
    recorded: dict[str, list[Tensor]] = {role: [] for role in model.roles}

    def observe(role: str, layer: int | None, name: str, value: Tensor) -> None:
        if name == "weights":
            recorded[role].append(value[:, 0])

    batch = model.batch_of(source_ids, source_lengths, decoder_input_ids, read_lengths)
    model.hidden(batch, observe)
    return {role: torch.stack(layers).float().cpu().numpy() for role, layers in recorded.items()}


def _record(
    model: Transformer,
    data: PreparedData,
    source_ids: list[int],
    ids: list[int],
    weights: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """Return the labels of a member's maps, and the statistics of its heads."""
    styles: dict[str, list[Attention]] = {}
    for attention in model.attentions:
        styles.setdefault(attention.context.role, []).append(attention.style)
    kinds = {
        role: max((style.weights for style in own), key=WEIGHTS.index)
        for role, own in styles.items()
    }
    record: dict[str, Any] = {
        "source_tokens": [data.source_vocabulary.label(i) for i in source_ids],
        # A decoder-only model reads the source, too.
        "target_tokens": [
            data.target_vocabulary.label(i) for i in (ids if model.encoder else source_ids + ids)
        ],
        "heads": {role: _statistics(maps) for role, maps in weights.items()},
        "weights": kinds,
        "signed": "signed" in kinds.values(),
    }
    texts = {
        role: dict.fromkeys(style.map_note for style in own if style.map_note)
        for role, own in styles.items()
    }
    if notes := {role: "; ".join(own) for role, own in texts.items() if own}:
        record["map_notes"] = notes
    if not model.attends_to_source:
        record["cross_tokens"] = record["target_tokens"]
    return record


def own_translations(
    model: Transformer, data: PreparedData, source: Tensor, lengths: Tensor, max_length: int
) -> list[list[int]]:
    """Return the decoder inputs of each member's own translation of ``source [member, 1, time]``: its tokens, or zeros.

    Raises:
        HeadToHeadError: If the configuration has no decoding.
    """
    if model.config.evaluate.decode == "non-autoregressive":
        return [[0] * source.shape[-1]] * model.members
    ends, evaluate = Ends.of(data.target_vocabulary), model.config.evaluate
    if evaluate.decode != "greedy" or ends is None:
        raise HeadToHeadError(
            f"the run has no translation (evaluate.decode: {evaluate.decode}); pass a target"
        )
    with matmul_precision(model):
        ids = greedy(model, source, lengths, max_length, ends)
    return [
        [ends.sos, *(token for token in own if token != ends.fill)] for own in ids[:, 0].tolist()
    ]


def write_maps(folder: Path, maps: Sequence[SentenceMaps]) -> None:
    """Write maps and their labels to a run's ``attention`` folder."""
    folder.mkdir(exist_ok=True)
    arrays = {
        f"{index}/{role}": np.ascontiguousarray(weights)
        for index, probe in enumerate(maps)
        for role, weights in probe.weights.items()
    }
    content = save(arrays)
    files.replace(folder / "maps.safetensors", lambda path: path.write_bytes(content))
    files.write_json(folder / "probes.json", [probe.record for probe in maps])


def summary(maps: Sequence[SentenceMaps]) -> dict[str, float]:
    """Return means over probes, layers and heads."""
    metrics: dict[str, float] = {}
    for role in maps[0].weights if maps else ():
        heads = [head for probe in maps for layer in probe.record["heads"][role] for head in layer]
        for name in ("entropy", "distance"):
            values = [head[name] for head in heads if head[name] is not None]
            if values:
                metrics[f"attention/{role}/{name}"] = math.fsum(values) / len(values)
    return metrics


def _statistics(maps: np.ndarray) -> list[list[dict[str, float | None]]]:
    """Return entropy and mean distance by layer and head; None for a head without weights."""

    def of_head(values: list[float]) -> dict[str, float | None]:
        return {
            name: None if math.isnan(x) else x
            for name, x in zip(("entropy", "distance"), values, strict=True)
        }

    return [
        list(map(of_head, layer))
        for layer in np.stack([entropy(maps), mean_distance(maps)], axis=-1).tolist()
    ]

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
from headtohead.model.quirks import decoder_input_lengths
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
        ids = decoder_input(model, data, data.tokenise(target, "target"))
        inputs = [ids] * model.members
    members_of: dict[tuple[int, ...], list[int]] = {}
    for member, ids in enumerate(inputs):
        members_of.setdefault(tuple(ids), []).append(member)
    maps: dict[int, SentenceMaps] = {}
    for input_ids, members in members_of.items():
        ids = list(input_ids)
        weights = _weights(model, source_ids, source_lengths, ids)
        for member in members:
            member_weights = {role: weights[role][:, member] for role in weights}
            record = _record(model, data, source_ids[0, 0].tolist(), ids, member_weights)
            record |= {"source": source, "target": target, "target_from": target_from}
            maps[member] = SentenceMaps(record, member_weights)
    return [maps[member] for member in range(model.members)]


def decoder_input(model: Transformer, data: PreparedData, ids: list[int]) -> list[int]:
    """Return the decoder input of the ids of a target: without the last token if it is a label only.

    A text has no end, and a single token no next token to predict, so all their tokens are inputs.
    """
    if data.tokenisers["target"].unit.is_text:
        return ids
    length = decoder_input_lengths(model.config, np.array([len(ids)]))[0]
    return ids[:length] or ids


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
    weights = {}
    for role, layers in recorded.items():
        weights[role] = torch.stack(layers).float().cpu().numpy()
    return weights


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
    kinds = {}
    notes = {}
    for role, layers in styles.items():
        kinds[role] = max((style.weights for style in layers), key=WEIGHTS.index)
        texts = dict.fromkeys(style.map_note for style in layers if style.map_note)
        if texts:
            notes[role] = "; ".join(texts)
    target_ids = ids
    if not model.encoder:  # a decoder-only model reads the source, too
        target_ids = source_ids + ids
    record: dict[str, Any] = {
        "source_tokens": [data.source_vocabulary.label(index) for index in source_ids],
        "target_tokens": [data.target_vocabulary.label(index) for index in target_ids],
        "heads": {role: _statistics(maps) for role, maps in weights.items()},
        "weights": kinds,
        "signed": "signed" in kinds.values(),
    }
    if notes:
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
    inputs = []
    for translation in ids[:, 0].tolist():
        words = [token for token in translation if token != ends.fill]
        inputs.append([ends.sos, *words])
    return inputs


def write_maps(folder: Path, maps: Sequence[SentenceMaps]) -> None:
    """Write maps and their labels to a run's ``attention`` folder."""
    folder.mkdir(exist_ok=True)
    arrays = {}
    for index, probe in enumerate(maps):
        for role, weights in probe.weights.items():
            arrays[f"{index}/{role}"] = np.ascontiguousarray(weights)
    content = save(arrays)
    files.replace(folder / "maps.safetensors", lambda path: path.write_bytes(content))
    files.write_json(folder / "probes.json", [probe.record for probe in maps])


def summary(maps: Sequence[SentenceMaps]) -> dict[str, float]:
    """Return means over probes, layers and heads."""
    metrics: dict[str, float] = {}
    roles = list(maps[0].weights) if maps else []
    for role in roles:
        heads: list[dict[str, Any]] = []
        for probe in maps:
            for layer in probe.record["heads"][role]:
                heads.extend(layer)
        for name in ("entropy", "distance"):
            values = [head[name] for head in heads if head[name] is not None]
            if values:
                metrics[f"attention/{role}/{name}"] = math.fsum(values) / len(values)
    return metrics


def _statistics(maps: np.ndarray) -> list[list[dict[str, float | None]]]:
    """Return entropy and mean distance by layer and head; None for a head without weights."""

    def number(value: float) -> float | None:
        return None if math.isnan(value) else value

    layers = []
    for entropies, distances in zip(
        entropy(maps).tolist(), mean_distance(maps).tolist(), strict=True
    ):
        heads = []
        for head_entropy, head_distance in zip(entropies, distances, strict=True):
            heads.append({"entropy": number(head_entropy), "distance": number(head_distance)})
        layers.append(heads)
    return layers

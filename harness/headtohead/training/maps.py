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

from headtohead import files
from headtohead.data import PreparedData
from headtohead.errors import HeadToHeadError
from headtohead.model.beam import translate
from headtohead.model.blocks import DecoderLayer, EncoderLayer
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import STEPWISE
from headtohead.storage.attention_maps import head_statistics


@dataclass(frozen=True)
class ProbeMaps:
    """The maps of one sentence: float32 ``[layer, head, query, key]`` by role, and their labels."""

    record: dict[str, Any]
    weights: Mapping[str, np.ndarray]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{role} {list(maps.shape)}" for role, maps in self.weights.items())
        return f"ProbeMaps({self.record['source']!r}: {shapes})"


@torch.no_grad()
def probe_maps(
    model: Transformer,
    member: int,
    data: PreparedData,
    source: str,
    target: str | None,
    max_length: int,
    target_from: str = "reference",
) -> ProbeMaps:
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
        ids = own_translation(model, member, data, source_ids, source_lengths, max_length)
    else:
        ids = data.tokenise(target, "target")
        # A lonely token has no next one to predict; it is read all the same.
        ids = ids if not model.config.quirks.shift_targets else ids[:-1] or ids
    decoder_input_ids = torch.tensor(ids, device=device).expand(model.members, 1, -1)
    read_lengths = torch.full_like(source_lengths, len(ids))
    fused = model(source_ids, source_lengths, decoder_input_ids, read_lengths)[member]
    recorded: dict[str, list[Tensor]] = {role: [] for role in ROLES}

    def observe(role: str, layer: int | None, name: str, value: Tensor) -> None:
        if name == "weights":
            recorded[role].append(value[member, 0])

    memory = model.encode(source_ids, source_lengths, observe)
    hidden = model.decode(decoder_input_ids, read_lengths, memory, source_lengths, observe)
    difference = float((model.project(hidden)[member] - fused).abs().max())
    styles = _styles(model)
    weights = {role: torch.stack(layers).float().cpu().numpy() for role, layers in recorded.items()}
    record: dict[str, Any] = {
        "source": source,
        "target": target,
        "target_from": target_from,
        "source_tokens": [data.source_vocabulary.label(i) for i in source_ids[0, 0].tolist()],
        "target_tokens": [data.target_vocabulary.label(i) for i in ids],
        "heads": {role: _describe(maps) for role, maps in weights.items()},
        "weights": {role: style.weights for role, style in styles.items()},
        "signed": any(style.weights == "signed" for style in styles.values()),
        "fused_difference": difference,
    }
    notes = {role: style.map_note for role, style in styles.items() if style.map_note}
    if notes:
        record["map_notes"] = notes
    if not model.attends_to_source:
        record["cross_tokens"] = record["target_tokens"]
    return ProbeMaps(record, weights)


def own_translation(
    model: Transformer, member: int, data: PreparedData, source: Tensor, lengths: Tensor, max_length: int
) -> list[int]:
    """Return what the decoder reads when the run translates: the words so far, or zeros.

    Args:
        model: A stack; all its members compute, one is read.
        member: The one that is read.
        data: For the vocabularies.
        source: Ids ``[member, 1, time]``.
        lengths: ``[member, 1]``.
        max_length: Most words.

    Raises:
        HeadToHeadError: If the configuration does not translate.
    """
    if model.config.evaluate.decode == "non-autoregressive":
        return [0] * source.shape[-1]
    sos, eos, pad = (getattr(data.target_vocabulary, name) for name in ("sos", "eos", "pad"))
    evaluate = model.config.evaluate
    if evaluate.decode not in STEPWISE or sos is None or eos is None:
        raise HeadToHeadError(
            f"the run makes no translation of its own to read (evaluate.decode: {evaluate.decode}); give a target"
        )
    fill = eos if pad is None else pad
    ids = translate(model, source, lengths, max_length, evaluate.beam, sos=sos, eos=eos, fill=fill)
    return [sos, *(word for word in ids[member, 0].tolist() if word != fill)]


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


def _styles(model: Transformer) -> dict[str, Attention]:
    """Return the attention style of each role."""
    encoder, decoder = model.encoder[0], model.decoder[0]
    assert isinstance(encoder, EncoderLayer)
    assert isinstance(decoder, DecoderLayer)
    parts = {"encoder": encoder.attention, "decoder": decoder.attention, "cross": decoder.cross}
    return {role: part.style for role, part in parts.items()}


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

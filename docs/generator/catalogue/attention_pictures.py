"""Pictures of attention styles: the widths of heads to scale, and the weights of an untrained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from catalogue.pictures import HeadBoxes, HeatMaps, covering
from catalogue.small_model import (
    ROLE_NAMES,
    SEED,
    SOURCE,
    TARGET,
    in_role,
    incompatibility,
    small_config,
    small_roles,
)
from headtohead.config.builder import resolve
from headtohead.model.geometry import find_geometry, only_length
from headtohead.model.transformer import Transformer
from headtohead.plugins.component import Geometry
from headtohead.plugins.registry import find_attention
from headtohead.schema.run_config import RunConfig

FIRST_TOKEN = 4
"""Smaller ids are special tokens."""


def attention_pictures(name: str) -> list[HeadBoxes | HeatMaps]:
    """Return the geometry of a style, and its weights in each compatible role."""
    boxes: list[HeadBoxes | HeatMaps] = []
    maps: list[HeadBoxes | HeatMaps] = []
    for role in small_roles():
        families = in_role("attention", name, role)
        if incompatibility(families) is not None:
            continue
        config = _config(families)
        weights, mask = untrained_weights(config, role)
        if not boxes:
            projects = find_attention(name).projects
            boxes.append(_head_boxes(find_geometry(config, role), projects, config.model.d_model))
        masked = weights if mask is None else weights.masked_fill(~mask, torch.nan)
        names = [f"head {head}" for head in range(len(weights))] if len(weights) > 1 else [""]
        values = [
            [[None if cell != cell else cell for cell in row] for row in matrix]
            for matrix in masked.tolist()
        ]
        rows = SOURCE if role == "encoder" else TARGET
        columns = TARGET if role == "decoder" else SOURCE
        colours = covering(masked.numpy(), probabilities=True)
        title = f"{ROLE_NAMES[role]}: weights"
        named = list(zip(names, values, strict=True))
        maps.append(HeatMaps(title, named, rows, columns, "query", "key", "weight", colours))
    return boxes + maps


def untrained_weights(config: RunConfig, role: str) -> tuple[Tensor, Tensor | None]:
    """Return the weights of the first layer of a role on one pair, ``[head, query, key]``.

    The second result is the mask of the role, ``[query, key]``, or None if nothing is masked.
    """
    model = Transformer(config, [SEED], FIRST_TOKEN + len(SOURCE), FIRST_TOKEN + len(TARGET))
    model = model.double().eval()
    observed: dict[str, Tensor] = {}

    def observe(part: str, layer: int | None, name: str, value: Tensor) -> None:
        if part == role and layer == 0:
            observed[name] = value

    source, target = (
        torch.arange(FIRST_TOKEN, FIRST_TOKEN + len(sentence)).view(1, 1, -1)
        for sentence in (SOURCE, TARGET)
    )
    source_length, target_length = torch.tensor([[len(SOURCE)]]), torch.tensor([[len(TARGET)]])
    with torch.no_grad():
        memory = model.encode(source, source_length, observe)
        model.decode(target, target_length, memory, source_length, observe)
    mask = observed.get("mask")
    return observed["weights"][0, 0], None if mask is None else mask[0, 0, 0]


def _config(families: Mapping[str, Any]) -> RunConfig:
    """Return the configuration; its width is the sentence length if a style requires that."""
    fields = {
        **small_config(**families),
        "positional": "sinusoidal",
        "evaluate": {"decode": "teacher-forced"},
    }
    config = resolve(fields)
    if only_length(config) is not None:
        fields["model"] |= {"d_model": len(TARGET), "heads": 1}
        config = resolve(fields)
    return config


def _head_boxes(geometry: Geometry, projects: bool, d_model: int) -> HeadBoxes:
    if not projects:
        note = f"Nothing is projected: one head as wide as the model, d = {d_model}."
        return HeadBoxes(
            "heads", [("values", [(float(geometry.value_width), 0)])], note, float(d_model)
        )
    per_group = geometry.heads // geometry.kv_heads
    queries = [(float(geometry.key_width), head // per_group) for head in range(geometry.heads)]
    keys = [(float(geometry.key_width), group) for group in range(geometry.kv_heads)]
    values = [(float(geometry.value_width), group) for group in range(geometry.value_heads)]
    ratio = geometry.value_heads / geometry.output_heads
    outputs = [
        (float(geometry.value_width), int(head * ratio)) for head in range(geometry.output_heads)
    ]
    sizes = f"d_k = {geometry.key_width}, d_v = {geometry.value_width}"
    if not geometry.key_width:
        queries, keys = [], []
        note = f"Scores do not depend on the tokens: no queries, no keys. d = {d_model}, {sizes}."
    else:
        shared = "" if per_group == 1 else ", shared by heads of the same colour"
        note = (
            f"Widths to scale, with d = {d_model}: {sizes}. "
            f"Key and value heads: {geometry.kv_heads} of {geometry.heads}{shared}."
        )
        if geometry.output_heads != geometry.heads:
            note += f" {geometry.heads} maps are mixed into {geometry.output_heads}."
    rows = [("queries", queries), ("keys", keys), ("values", values), ("outputs", outputs)]
    return HeadBoxes("heads", rows, note, float(d_model))

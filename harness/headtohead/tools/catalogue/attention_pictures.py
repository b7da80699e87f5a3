"""Pictures of attention styles: heads to scale, and the weights of an untrained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headtohead.config.resolve import resolve
from headtohead.figures.heat_map import ColourRange
from headtohead.model.geometry import find_geometry, only_length
from headtohead.model.transformer import Transformer
from headtohead.plugins.positional import Geometry
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.tools.catalogue.pictures import Heads, HeatMaps, Note, Values
from headtohead.tools.catalogue.small import ROLE_NAMES, SEED, SOURCE, TARGET, raw, reason_against

FIRST_TOKEN = 4
"""Smaller ids are special tokens."""


def attention_pictures(name: str, registry: Registry) -> list[Heads | HeatMaps | Note]:
    """Return the geometry of a style, and its weights in each role."""
    projects = registry.attention(name).projects
    heads: list[Heads | HeatMaps | Note] = []
    maps: list[Heads | HeatMaps | Note] = []
    for role in ROLES:
        families = {"attention": _only(name, role)}
        title = f"{ROLE_NAMES[role]}: weights"
        reason = reason_against(families, registry)
        if reason is not None:
            maps.append(Note(ROLE_NAMES[role], f"Not defined: {reason}."))
            continue
        config = _config(families, registry)
        weights, mask = untrained_weights(config, role)
        if not heads:
            heads.append(_heads(find_geometry(config, role), projects, config.model.d_model))
        rows = SOURCE if role == "encoder" else TARGET
        columns = TARGET if role == "decoder" else SOURCE
        named = [(f"head {head}" if len(weights) > 1 else "", matrix) for head, matrix in enumerate(weights)]
        masked = weights if mask is None else weights.masked_fill(~mask, torch.nan)
        colours = ColourRange.of(masked.numpy(), probabilities=True)
        values = [(head, _values(matrix, mask)) for head, matrix in named]
        maps.append(HeatMaps(title, values, rows, columns, "query", "key", "weight", colours))
    return heads + maps


def _only(name: str, role: str) -> dict[str, str]:
    return {one: name if one == role else "split-heads" for one in ROLES}


def _config(families: Mapping[str, Any], registry: Registry) -> RunConfig:
    """Return the configuration; its width is the sentence length where a style requires that."""
    asked = {**raw(**families), "positional": "sinusoidal"}
    asked["evaluate"] = {"decode": "teacher-forced"}
    config = resolve(asked, registry)
    if only_length(config) is not None:
        asked["model"] |= {"d_model": len(TARGET), "heads": 1}
        config = resolve(asked, registry)
    return config


def untrained_weights(config: RunConfig, role: str) -> tuple[Tensor, Tensor | None]:
    """Return the weights of the first layer of a role on one pair, ``[head, query, key]``.

    The second result is the mask of the role, ``[query, key]``, or None where nothing is masked.
    """
    model = Transformer(config, [SEED], FIRST_TOKEN + len(SOURCE), FIRST_TOKEN + len(TARGET))
    model = model.double().eval()
    found: dict[str, Tensor] = {}

    def observe(site: str, layer: int | None, name: str, value: Tensor) -> None:
        if site == role and layer == 0:
            found[name] = value

    source = _sentence(len(SOURCE))
    target = _sentence(len(TARGET))
    lengths = torch.tensor([[len(SOURCE)]]), torch.tensor([[len(TARGET)]])
    with torch.no_grad():
        memory = model.encode(source, lengths[0], observe)
        model.decode(target, lengths[1], memory, lengths[0], observe)
    mask = found.get("mask")
    return found["weights"][0, 0], None if mask is None else mask[0, 0, 0]


def _sentence(length: int) -> Tensor:
    return torch.arange(FIRST_TOKEN, FIRST_TOKEN + length).view(1, 1, -1)


def _values(matrix: Tensor, mask: Tensor | None) -> Values:
    kept = torch.ones_like(matrix, dtype=torch.bool) if mask is None else mask
    return [
        [value if mask else None for value, mask in zip(row, keeps, strict=True)]
        for row, keeps in zip(matrix.tolist(), kept.tolist(), strict=True)
    ]


def _heads(geometry: Geometry, projects: bool, d_model: int) -> Heads:
    if not projects:
        note = f"Nothing is projected: one head as wide as the model, d = {d_model}."
        return Heads("heads", [("values", [(float(geometry.value_width), 0)])], note, float(d_model))
    per_group = geometry.heads // geometry.kv_heads
    queries = [(float(geometry.key_width), head // per_group) for head in range(geometry.heads)]
    keys = [(float(geometry.key_width), group) for group in range(geometry.kv_heads)]
    values = [(float(geometry.value_width), group) for group in range(geometry.value_heads)]
    ratio = geometry.value_heads / geometry.reading_heads
    outputs = [(float(geometry.value_width), int(head * ratio)) for head in range(geometry.reading_heads)]
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
        if geometry.reading_heads != geometry.heads:
            note += f" {geometry.heads} maps are mixed into {geometry.reading_heads}."
    rows = [("queries", queries), ("keys", keys), ("values", values), ("outputs", outputs)]
    return Heads("heads", rows, note, float(d_model))

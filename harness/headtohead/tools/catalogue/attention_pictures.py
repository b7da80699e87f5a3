"""The heads of an attention drawn to scale, and the weights of a model that was never trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headtohead.config.resolve import resolve
from headtohead.model.geometry import find_geometry, only_length
from headtohead.model.transformer import Transformer
from headtohead.plugins.positional import Geometry
from headtohead.plugins.registry import Registry
from headtohead.schema.config import RunConfig
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.panels import Heads, Heat, Panel, Words
from headtohead.tools.catalogue.positional_pictures import rounded
from headtohead.tools.catalogue.small import ROLE_WORDS, SEED, SOURCE, TARGET, raw, reason_against
from headtohead.tools.catalogue.svg import Scale

FIRST_WORD = 4
"""Ids below it are special tokens."""


def attention_panels(name: str, registry: Registry) -> list[Panel]:
    """Return the geometry of a style, and its weights in each role."""
    entry = registry.attention(name)
    panels: list[Panel] = []
    weights: list[Panel] = []
    geometry: Geometry | None = None
    for role in ROLES:
        families = {"attention": _only(name, role)}
        title = f"{ROLE_WORDS[role]}: weights"
        reason = reason_against(families, registry)
        if reason is not None:
            weights.append(Words(title, f"Not defined: {reason}."))
            continue
        config, sizes = _config(families, registry)
        geometry = geometry or find_geometry(config, role)
        drawn, mask = untrained_weights(config, role)
        rows = SOURCE if role == "encoder" else TARGET
        columns = TARGET if role == "decoder" else SOURCE
        maps = [(f"head {head}" if len(drawn) > 1 else "", _masked(matrix, mask)) for head, matrix in enumerate(drawn)]
        seen = [v for _, m in maps for row in m for v in row if v is not None]
        scale = Scale.of(seen, share=True)
        weights.append(Heat(title, maps, rows, columns, "query", "key", "weight", scale))
        if len(panels) == 0:
            panels.append(_heads(geometry, entry.projects, sizes))
    return panels + weights


def _only(name: str, role: str) -> dict[str, str]:
    return {one: name if one == role else "split-heads" for one in ROLES}


def _config(families: Mapping[str, Any], registry: Registry) -> tuple[RunConfig, int]:
    """Return the configuration and its width: that of the sentence where a style asks for it."""
    asked = {**raw(**families), "positional": "sinusoidal"}
    asked["evaluate"] = {"decode": "forced"}
    config = resolve(asked, registry)
    if only_length(config) is not None:
        asked["model"] |= {"d_model": len(TARGET), "heads": 1}
        config = resolve(asked, registry)
    return config, config.model.d_model


def untrained_weights(config: RunConfig, role: str) -> tuple[Tensor, Tensor | None]:
    """Return the weights of the first layer of a role on one pair, ``[head, query, key]``.

    Beside them the mask of the role, ``[query, key]``, or None where nothing is masked.
    """
    model = Transformer(config, [SEED], FIRST_WORD + len(SOURCE), FIRST_WORD + len(TARGET))
    model = model.double().eval()
    seen: dict[str, Tensor] = {}

    def observe(where: str, layer: int | None, name: str, value: Tensor) -> None:
        if where == role and layer == 0:
            seen[name] = value

    source = _sentence(len(SOURCE))
    target = _sentence(len(TARGET))
    lengths = torch.tensor([[len(SOURCE)]]), torch.tensor([[len(TARGET)]])
    with torch.no_grad():
        memory = model.encode(source, lengths[0], observe)
        model.decode(target, lengths[1], memory, lengths[0], observe)
    mask = seen.get("mask")
    return seen["weights"][0, 0], None if mask is None else mask[0, 0, 0]


def _sentence(words: int) -> Tensor:
    return torch.arange(FIRST_WORD, FIRST_WORD + words).view(1, 1, -1)


def _masked(matrix: Tensor, mask: Tensor | None) -> list[list[float | None]]:
    rows = rounded(matrix)
    if mask is None:
        return [list(row) for row in rows]
    return [
        [value if kept else None for value, kept in zip(row, keep, strict=True)]
        for row, keep in zip(rows, mask.tolist(), strict=True)
    ]


def _heads(geometry: Geometry, projects: bool, d_model: int) -> Panel:
    per_group = geometry.heads // geometry.kv_heads
    queries = [(float(geometry.key_width), head // per_group) for head in range(geometry.heads)]
    keys = [(float(geometry.key_width), group) for group in range(geometry.kv_heads)]
    values = [(float(geometry.value_width), group) for group in range(geometry.value_heads)]
    spread = geometry.value_heads / geometry.reading_heads
    read = [(float(geometry.value_width), int(head * spread)) for head in range(geometry.reading_heads)]
    if not geometry.key_width:
        queries, keys = [], []
    if not projects:
        note = f"Nothing is projected: one head as wide as the model, d = {d_model}."
        return Heads("heads", [("values", values)], note, float(d_model))
    shared = "" if per_group == 1 else ", shared by heads of one colour"
    sizes = f"d_k = {geometry.key_width}, d_v = {geometry.value_width}"
    note = (
        f"Widths to scale, with d = {d_model}: {sizes}. "
        f"Key and value heads: {geometry.kv_heads} of {geometry.heads}{shared}."
    )
    if geometry.reading_heads != geometry.heads:
        note += f" {geometry.heads} maps are mixed into {geometry.reading_heads}."
    if not geometry.key_width:
        note = f"Content has no say in the scores: no queries, no keys. d = {d_model}, {sizes}."
    rows = [("queries", queries), ("keys", keys), ("values", values), ("read", read)]
    return Heads("heads", rows, note, float(d_model))

"""The small model and the sentences that pictures are computed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from headtohead.config.resolve import resolve
from headtohead.errors import HeadToHeadError
from headtohead.model.geometry import find_geometry
from headtohead.planning.compatibility import undefined_reason
from headtohead.plugins.entry import Options
from headtohead.plugins.positional import BuildContext, Positional
from headtohead.plugins.registry import Registry

D_MODEL, HEADS, LAYERS, TIME = 32, 4, 2, 16
SEED = 1
ROLE_NAMES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}
THE_ROLE = {"encoder": "the encoder", "decoder": "the decoder", "cross": "cross-attention"}

SOURCE = ("the", "old", "dog", "sees", "a", "cat", ".", "</s>")
TARGET = ("<s>", "le", "vieux", "chien", "voit", "un", "chat", ".")
PADS = ("pad",) * 3
LONG_SOURCE = ("when", "the", "old", "dog", "saw", "a", "cat", "it", "ran", "after", "it", ".", "</s>", *PADS)
LONG_TARGET = ("<s>", "quand", "le", "vieux", "chien", "vit", "un", "chat", "il", "courut", "après", "lui", ".", *PADS)
LIVE = 13
"""Tokens before the padding."""


def raw(**families: Any) -> dict[str, Any]:
    """Return a small configuration with the keys of an experiment file."""
    model = {"d_model": D_MODEL, "heads": HEADS, "layers": LAYERS, "d_ff": 48, "dropout": 0.0}
    train = {"steps": 1, "precision": "float64"}
    return {"model": model, "train": train, **families}


def reason_against(
    families: Mapping[str, Any],
    registry: Registry,
    longest: Mapping[str, int] | None = None,
    model: Mapping[str, int] | None = None,
) -> str | None:
    """Return why a plan would exclude a configuration, or None.

    Teacher-forced decoding is tried too, for attention defined for a single sentence length.
    """
    asked = raw(**families)
    asked["model"] |= model or {}
    reasons = []
    for decode in ("greedy", "teacher-forced"):
        try:
            config = resolve({**asked, "evaluate": {"decode": decode}}, registry)
        except HeadToHeadError as error:
            reasons.append(str(error).removeprefix("configuration: "))
            continue
        reason = undefined_reason(config, longest or {}, registry)
        if reason is None:
            return None
        reasons.append(reason)
    return reasons[-1]


def build_positional(
    entry: type[Positional], role: str, registry: Registry, options: Options | None = None
) -> Positional:
    """Build one encoding for all layers of a role, in float64."""
    config = resolve(raw(), registry)
    context = BuildContext(role, LAYERS, D_MODEL, find_geometry(config, role), [torch.Generator().manual_seed(SEED)])
    return entry(options or entry.Options(), context).double().eval()

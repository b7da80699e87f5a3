"""The small model and the sentences of the pictures, and the rules of compatibility applied to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from headtohead.config.builder import resolve
from headtohead.errors import HeadToHeadError
from headtohead.model.geometry import find_geometry
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.component import BuildContext
from headtohead.plugins.positional import Positional

D_MODEL, HEADS, LAYERS, TIME = 32, 4, 2, 16
SEED = 1
ROLE_NAMES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}
IN_ROLE = {"encoder": "in the encoder", "decoder": "in the decoder", "cross": "in cross-attention"}
DEFAULTS = {
    "positional": dict.fromkeys(ROLE_NAMES, "none"),
    "attention": dict.fromkeys(ROLE_NAMES, "split-heads"),
    "masking": {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"},
}

SOURCE = ("the", "old", "dog", "sees", "a", "cat", ".", "</s>")
TARGET = ("<s>", "le", "vieux", "chien", "voit", "un", "chat", ".")
PADS = ("pad",) * 3
PADDED_SOURCE = (
    "when",
    "the",
    "old",
    "dog",
    "saw",
    "a",
    "cat",
    "it",
    "ran",
    "after",
    "it",
    ".",
    "</s>",
    *PADS,
)
PADDED_TARGET = (
    *(
        "<s>",
        "quand",
        "le",
        "vieux",
        "chien",
        "vit",
        "un",
        "chat",
        "il",
        "courut",
        "après",
        "lui",
        ".",
    ),
    *PADS,
)
NUM_TOKENS = 13
"""Tokens before the padding."""


def small_config(**families: Any) -> dict[str, Any]:
    """Return a small configuration with the keys of an experiment file."""
    model = {"d_model": D_MODEL, "heads": HEADS, "layers": LAYERS, "d_ff": 48, "dropout": 0.0}
    train = {"steps": 1, "precision": "float64"}
    return {"model": model, "train": train, **families}


@cache
def small_roles() -> tuple[str, ...]:
    """Return the roles of the small model."""
    return resolve(small_config()).roles


def in_role(family: str, name: str, role: str) -> dict[str, dict[str, str]]:
    """Return an entry in one role, with default entries in the others."""
    return {family: {**DEFAULTS[family], role: name}}


def incompatibility(
    families: Mapping[str, Any],
    longest: Mapping[str, int] | None = None,
    model: Mapping[str, int] | None = None,
) -> str | None:
    """Return why a plan would exclude a small configuration, or None.

    Teacher-forced decoding is tried too, since some attention styles support a single sentence length.

    Args:
        families: Entries by family.
        longest: Tokens of the longest sentence by side.
        model: Fields of ``model`` to override.
    """
    fields = small_config(**families)
    fields["model"] |= model or {}
    reason = None
    for decode in ("greedy", "teacher-forced"):
        try:
            config = resolve({**fields, "evaluate": {"decode": decode}})
        except HeadToHeadError as error:
            reason = str(error).removeprefix("configuration: ")
            continue
        reason = find_incompatibility(config, longest or {})
        if reason is None:
            return None
    return reason


def build_positional(entry: type[Positional], role: str) -> Positional:
    """Build an encoding with default options for all layers of a role, in float64."""
    geometry = find_geometry(resolve(small_config()), role)
    context = BuildContext(role, LAYERS, D_MODEL, geometry, [torch.Generator().manual_seed(SEED)])
    return entry(entry.Options(), context).double().eval()

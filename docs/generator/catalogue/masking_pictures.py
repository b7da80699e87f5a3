"""Pictures of masking schemes: the keys that each query may attend to, token by token."""

from __future__ import annotations

import torch

from catalogue.pictures import HeatMaps
from catalogue.small_model import (
    NUM_TOKENS,
    PADDED_SOURCE,
    PADDED_TARGET,
    ROLE_NAMES,
    in_role,
    incompatibility,
    small_roles,
)
from headtohead.figures.heat_map import ColourRange
from headtohead.plugins.registry import find_masking


def masking_pictures(name: str) -> list[HeatMaps]:
    """Return the mask of each compatible role, on sentences that end in padding."""
    entry = find_masking(name)
    masking = entry(entry.Options())
    pictures = []
    for role in small_roles():
        if incompatibility(in_role("masking", name, role)) is not None:
            continue
        rows = PADDED_SOURCE if role == "encoder" else PADDED_TARGET
        columns = PADDED_TARGET if role == "decoder" else PADDED_SOURCE
        mask = masking.mask(
            role, torch.arange(len(rows)), torch.arange(len(columns)), torch.tensor([NUM_TOKENS])
        )
        shape = (1, len(rows), len(columns))
        mask = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
        values = [[1.0 if attended else None for attended in row] for row in mask[0].tolist()]
        title = ROLE_NAMES[role] + (", if set for this role" if role in entry.role_defaults else "")
        colours = ColourRange(0.0, 1.0)
        pictures.append(
            HeatMaps(
                title,
                [("", values)],
                rows,
                columns,
                "query",
                "key",
                "",
                colours,
                ("attended", "masked"),
            )
        )
    return pictures

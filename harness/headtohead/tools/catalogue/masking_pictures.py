"""Pictures of masking schemes: which keys each query may attend to, token by token."""

from __future__ import annotations

import torch

from headtohead.figures.heat_map import ColourRange
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.pictures import HeatMaps, Note
from headtohead.tools.catalogue.small import LIVE, LONG_SOURCE, LONG_TARGET, ROLE_NAMES, reason_against


def masking_pictures(name: str, registry: Registry) -> list[HeatMaps | Note]:
    """Return the mask of each role, on sentences that end in padding."""
    entry = registry.masking(name)
    masking = entry(entry.Options())
    pictures: list[HeatMaps | Note] = []
    for role in ROLES:
        reason = reason_against({"masking": _only(name, role)}, registry)
        title = ROLE_NAMES[role] + (", if named there" if role in entry.role_defaults else "")
        if reason is not None:
            pictures.append(Note(title, f"Not defined: {reason}."))
            continue
        rows = LONG_SOURCE if role == "encoder" else LONG_TARGET
        columns = LONG_TARGET if role == "decoder" else LONG_SOURCE
        mask = masking.mask(role, torch.arange(len(rows)), torch.arange(len(columns)), torch.tensor([LIVE]))
        shape = (1, len(rows), len(columns))
        mask = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
        values = [[1.0 if kept else None for kept in row] for row in mask[0].tolist()]
        legend = ("attended", "masked")
        pictures.append(
            HeatMaps(title, [("", values)], rows, columns, "query", "key", "", ColourRange(0.0, 1.0), legend)
        )
    return pictures


def _only(name: str, role: str) -> dict[str, str]:
    """Return the scheme in one role and the default schemes in the others."""
    default = {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"}
    return {**default, role: name}

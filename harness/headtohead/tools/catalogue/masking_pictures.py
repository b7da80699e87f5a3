"""Who sees whom under a masking scheme, word by word."""

from __future__ import annotations

import torch

from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.panels import Heat, Panel, Words
from headtohead.tools.catalogue.small import LIVE, LONG_SOURCE, LONG_TARGET, ROLE_WORDS, reason_against
from headtohead.tools.catalogue.svg import Scale


def masking_panels(name: str, registry: Registry) -> list[Panel]:
    """Return the mask of each role, on sentences that end in padding."""
    entry = registry.masking(name)
    masking = entry(entry.Options())
    panels: list[Panel] = []
    for role in ROLES:
        reason = reason_against({"masking": _only(name, role)}, registry)
        title = ROLE_WORDS[role] + (", if named there" if role in entry.bare else "")
        if reason is not None:
            panels.append(Words(title, f"Not defined: {reason}."))
            continue
        rows = LONG_SOURCE if role == "encoder" else LONG_TARGET
        columns = LONG_TARGET if role == "decoder" else LONG_SOURCE
        keep = masking.keep(role, torch.arange(len(rows)), torch.arange(len(columns)), torch.tensor([LIVE]))
        shape = (1, len(rows), len(columns))
        kept = torch.ones(shape, dtype=torch.bool) if keep is None else keep.expand(shape)
        values = [[1.0 if seen else None for seen in row] for row in kept[0].tolist()]
        panels.append(Heat(title, [("", values)], rows, columns, "query", "key", "", Scale(0, 1.6), ("seen", "hidden")))
    return panels


def _only(name: str, role: str) -> dict[str, str]:
    """Return the choice of a scheme in one role, plain ones in the others."""
    plain = {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"}
    return {**plain, role: name}

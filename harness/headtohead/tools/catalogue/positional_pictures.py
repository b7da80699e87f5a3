"""What an encoding does to scores and embeddings, seen without any words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.panels import Heat, Lines, Panel, Words
from headtohead.tools.catalogue.small import D_MODEL, HEADS, ROLE_WORDS, TIME, build_positional, reason_against
from headtohead.tools.catalogue.svg import Scale

NUMBERS = tuple(str(place) for place in range(TIME))
SENTENCES = 8


def positional_panels(name: str, registry: Registry) -> list[Panel]:
    """Return the pictures of an encoding: heat maps first, roles that show the same together."""
    entry = registry.positional(name)
    found: list[tuple[str, Panel]] = []
    for role in ROLES:
        reason = reason_against({"positional": only(name, role)}, registry)
        if reason is not None:
            found.append((role, Words("", f"Not defined: {reason}.")))
        else:
            part = build_positional(entry, role, registry)
            found += [(role, panel) for panel in _panels(part, role)]
    return _joined(found)


def only(name: str, role: str) -> dict[str, str]:
    """Return the choice of an entry in one role, none in the others."""
    return {one: name if one == role else "none" for one in ROLES}


def kernel(part: Positional, role: str) -> Tensor | None:
    """Return what an encoding makes of equal tokens: ``[head, query, key]``, or None for nothing.

    Biases as they are; for rotations the mean of q·k over all directions of equal q and k of
    length 1; for what is added to embeddings the products of the positions' vectors, by width.
    """
    places = torch.arange(TIME).unsqueeze(0)
    found: Tensor | None = None
    acts = type(part).acts(part.options)
    if "embed" in acts and role != "cross":
        added = part.embed(places, role)
        if added is not None:
            table = added.expand(1, 1, TIME, D_MODEL)[0, 0].detach().double()
            found = (table @ table.T / D_MODEL).unsqueeze(0)
    if "rotate" in acts:
        found = _plus(found, _rotation(part, places, role))
    if "bias" in acts:
        bias = part.bias(places, places, role, 0)
        if bias is not None:
            found = _plus(found, bias.expand(1, 1, HEADS, TIME, TIME)[0, 0].detach().double())
    if "score" in acts:
        found = _plus(found, _content_score(part, places, role))
    return found


def _plus(found: Tensor | None, more: Tensor) -> Tensor:
    return more if found is None else found + more


def _rotation(part: Positional, places: Tensor, role: str) -> Tensor:
    """Return the trace of each pair of rotations, by width: the mean over equal q and k."""
    width = part.context.geometry.key_width
    every = torch.eye(width, dtype=torch.float64)[:, None, None, None, :].expand(-1, 1, 1, TIME, -1)
    turned = part.rotate(every.transpose(0, 1), places, role).transpose(0, 1).detach()
    return torch.einsum("wabqc,wabkc->qk", turned, turned).unsqueeze(0) / width


def _content_score(part: Positional, places: Tensor, role: str) -> Tensor:
    """Return scores of one query that stands everywhere: each head has its own, of length √d_k."""
    geometry = part.context.geometry
    generator = torch.Generator().manual_seed(7)
    q = torch.randn(HEADS, geometry.key_width, generator=generator, dtype=torch.float64)
    q = q / q.norm(dim=-1, keepdim=True) * geometry.key_width**0.5
    everywhere = q[None, None, :, None, :].expand(1, 1, -1, TIME, -1)
    scores = part.score(everywhere, places, places, role, 0)
    assert scores is not None
    return scores.expand(1, 1, HEADS, TIME, TIME)[0, 0].detach()


def _panels(part: Positional, role: str) -> Iterator[Panel]:
    acts = type(part).acts(part.options)
    places = torch.arange(TIME).unsqueeze(0)
    if not set(acts) & {"embed", "rotate", "bias", "score"}:
        yield Words("", "Adds nothing: scores depend on what the tokens are, not where they stand.")
        return
    if "embed" in acts and role == "cross":
        yield Words("", "Acts on embeddings, which cross-attention has none of.")
    elif "embed" in acts:
        added = part.embed(places, role)
        if added is not None:
            table = added.expand(1, 1, TIME, D_MODEL)[0, 0].detach().double()
            coordinates = tuple(str(place) for place in range(D_MODEL))
            yield Heat(
                "added to embeddings",
                [("", rounded(table))],
                NUMBERS,
                coordinates,
                "position",
                "coordinate",
                "what is added",
            )
    found = kernel(part, role)
    if found is None:
        return
    causal = role == "decoder"
    maps = [(f"head {head}" if len(found) > 1 else "", _shown(matrix, causal)) for head, matrix in enumerate(found)]
    unit = _unit(acts)
    whose = ("query i", "key j") if role != "cross" else ("target i", "source j")
    yield Heat(_kernel_title(acts), maps, NUMBERS, NUMBERS, *whose, unit)
    if _is_relative(found):
        reach = range(1 - TIME, 1 if causal else TIME)
        curves = [
            (f"head {head}" if len(found) > 1 else "", [_at(matrix, apart) for apart in reach])
            for head, matrix in enumerate(found)
        ]
        yield Lines("by distance", tuple(reach), curves, "j − i: where the key stands", unit)
    if "draw" in acts:
        yield _drawn(part)


def _kernel_title(acts: frozenset[str]) -> str:
    if "bias" in acts or "score" in acts:
        return "added to scores"
    return "rotated q·k" if "rotate" in acts else "position · position"


def _unit(acts: frozenset[str]) -> str:
    if "score" in acts:
        return "score, one q"
    if "bias" in acts:
        return "added score"
    return "q·k, q = k" if "rotate" in acts else "P[i]·P[j] / d"


def _shown(matrix: Tensor, causal: bool) -> list[list[float | None]]:
    return [
        [None if causal and key > query else float(value) for key, value in enumerate(row)]
        for query, row in enumerate(matrix)
    ]


def rounded(matrix: Tensor) -> list[list[float]]:
    """Return a matrix as rows of numbers."""
    return [[float(value) for value in row] for row in matrix]


def _is_relative(found: Tensor) -> bool:
    return bool((found[:, 1:, 1:] - found[:, :-1, :-1]).abs().max() < 1e-9)


def _at(matrix: Tensor, apart: int) -> float:
    query = max(0, -apart)
    return float(matrix[query, query + apart])


def _drawn(part: Positional) -> Panel:
    """Return the positions that training tells to the places of some sentences."""
    part.train()
    drawn = part.draw(SENTENCES, TIME)
    part.eval()
    if drawn is None:
        return Words("positions in training", "As many as places, from 0 on.")
    rows = tuple(str(number) for number in range(1, SENTENCES + 1))
    told = rounded(drawn[0].double())
    most = max(max(row) for row in told)
    return Heat(
        "positions in training", [("", told)], rows, NUMBERS, "sentence", "place", "position told", Scale(0.0, most)
    )


def _joined(found: Sequence[tuple[str, Panel]]) -> list[Panel]:
    """Put the roles' names into the titles, and roles with equal pictures together.

    A curve of the decoder that the encoder's holds too is left out.
    """
    groups: list[tuple[list[str], Panel]] = []
    for role, panel in found:
        for roles, known in groups:
            if known == panel:
                roles.append(role)
                break
            if isinstance(known, Lines) and isinstance(panel, Lines) and _holds(known, panel):
                break
        else:
            groups.append(([role], panel))
    order = [Heat, Lines, Words]
    groups.sort(key=lambda one: (order.index(type(one[1])), one[1].title == "positions in training"))
    return [replace(panel, title=titled(panel.title, roles)) for roles, panel in groups]


def _holds(known: Lines, other: Lines) -> bool:
    """Tell whether the curves of one picture are a part of those of another."""
    if not set(other.places) <= set(known.places) or len(known.curves) != len(other.curves):
        return False
    at = {place: number for number, place in enumerate(known.places)}
    return all(
        abs((mine[at[place]] or 0.0) - (value or 0.0)) < 1e-9
        for (_, mine), (_, theirs) in zip(known.curves, other.curves, strict=True)
        for place, value in zip(other.places, theirs, strict=True)
    )


def titled(title: str, roles: Sequence[str]) -> str:
    """Return a title with the roles it is about in front."""
    words = [ROLE_WORDS[role] if len(roles) < 3 else ROLE_WORDS[role].split("-")[0] for role in roles]
    names = ", ".join(words)
    return f"{names}: {title}" if title else names

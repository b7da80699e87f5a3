"""Pictures of positional encodings: their effect on scores and embeddings, without tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headtohead.figures.heat_map import ColourRange
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.pictures import HeatMaps, Lines, Note
from headtohead.tools.catalogue.small import D_MODEL, HEADS, ROLE_NAMES, TIME, build_positional, reason_against

NUMBERS = tuple(str(position) for position in range(TIME))
SENTENCES = 8


Shown = HeatMaps | Lines | Note


def positional_pictures(name: str, registry: Registry) -> list[Shown]:
    """Return the pictures of an encoding: heat maps first, equal pictures of several roles merged."""
    entry = registry.positional(name)
    found: list[tuple[str, Shown]] = []
    for role in ROLES:
        reason = reason_against({"positional": only(name, role)}, registry)
        if reason is not None:
            found.append((role, Note("", f"Not defined: {reason}.")))
        else:
            part = build_positional(entry, role, registry)
            found += [(role, picture) for picture in _pictures(part, role)]
    return _joined(found)


def only(name: str, role: str) -> dict[str, str]:
    """Return the encoding in one role, ``none`` in the others."""
    return {one: name if one == role else "none" for one in ROLES}


def kernel(part: Positional, role: str) -> Tensor | None:
    """Return the effect of an encoding on equal tokens, ``[head, query, key]``, or None for no effect.

    For a bias: the bias. For a rotation: the mean of q·k over all directions of equal q and k of
    length 1. For added embeddings: the dot products of the position vectors, divided by the width.
    """
    positions = torch.arange(TIME).unsqueeze(0)
    found: Tensor | None = None
    mechanisms = type(part).mechanisms_of(part.options)
    if "embed" in mechanisms and role != "cross":
        added = part.embed(positions, role)
        if added is not None:
            table = added.expand(1, 1, TIME, D_MODEL)[0, 0].detach().double()
            found = (table @ table.T / D_MODEL).unsqueeze(0)
    if "rotate" in mechanisms:
        found = _plus(found, _rotation(part, positions, role))
    if "bias" in mechanisms:
        bias = part.bias(positions, positions, role, 0)
        if bias is not None:
            found = _plus(found, bias.expand(1, 1, HEADS, TIME, TIME)[0, 0].detach().double())
    if "score" in mechanisms:
        found = _plus(found, _content_score(part, positions, role))
    return found


def _plus(found: Tensor | None, more: Tensor) -> Tensor:
    return more if found is None else found + more


def _rotation(part: Positional, positions: Tensor, role: str) -> Tensor:
    """Return the trace of each pair of rotations, by width: the mean over equal q and k."""
    width = part.context.geometry.key_width
    unit = torch.eye(width, dtype=torch.float64)[:, None, None, None, :].expand(-1, 1, 1, TIME, -1)
    turned = part.rotate(unit.transpose(0, 1), positions, role).transpose(0, 1).detach()
    return torch.einsum("wabqc,wabkc->qk", turned, turned).unsqueeze(0) / width


def _content_score(part: Positional, positions: Tensor, role: str) -> Tensor:
    """Return scores of the same query at every position: a random one per head, of length √d_k."""
    geometry = part.context.geometry
    generator = torch.Generator().manual_seed(7)
    q = torch.randn(HEADS, geometry.key_width, generator=generator, dtype=torch.float64)
    q = q / q.norm(dim=-1, keepdim=True) * geometry.key_width**0.5
    everywhere = q[None, None, :, None, :].expand(1, 1, -1, TIME, -1)
    scores = part.score(everywhere, positions, positions, role, 0)
    assert scores is not None
    return scores.expand(1, 1, HEADS, TIME, TIME)[0, 0].detach()


def _pictures(part: Positional, role: str) -> Iterator[Shown]:
    mechanisms = type(part).mechanisms_of(part.options)
    positions = torch.arange(TIME).unsqueeze(0)
    if not set(mechanisms) & {"embed", "rotate", "bias", "score"}:
        yield Note("", "Adds nothing: scores depend on the tokens, not on their positions.")
        return
    if "embed" in mechanisms and role == "cross":
        yield Note("", "Adds to embeddings, which cross-attention does not have.")
    elif "embed" in mechanisms:
        added = part.embed(positions, role)
        if added is not None:
            table = added.expand(1, 1, TIME, D_MODEL)[0, 0].detach().double()
            coordinates = tuple(str(at) for at in range(D_MODEL))
            yield HeatMaps(
                "added to embeddings",
                [("", table.tolist())],
                NUMBERS,
                coordinates,
                "position",
                "coordinate",
                "added value",
            )
    found = kernel(part, role)
    if found is None:
        return
    causal = role == "decoder"
    maps = [(f"head {head}" if len(found) > 1 else "", _shown(matrix, causal)) for head, matrix in enumerate(found)]
    unit = _unit(mechanisms)
    axes = ("query i", "key j") if role != "cross" else ("target i", "source j")
    yield HeatMaps(_kernel_title(mechanisms), maps, NUMBERS, NUMBERS, *axes, unit)
    if _is_relative(found):
        distances = range(1 - TIME, 1 if causal else TIME)
        curves = [
            (f"head {head}" if len(found) > 1 else "", [_at(matrix, distance) for distance in distances])
            for head, matrix in enumerate(found)
        ]
        yield Lines("by distance", tuple(distances), curves, "j − i: key position relative to the query", unit)
    if "draw" in mechanisms:
        yield _sampled_positions(part)


def _kernel_title(mechanisms: frozenset[str]) -> str:
    if "bias" in mechanisms or "score" in mechanisms:
        return "added to scores"
    return "rotated q·k" if "rotate" in mechanisms else "position · position"


def _unit(mechanisms: frozenset[str]) -> str:
    if "score" in mechanisms:
        return "score, one q"
    if "bias" in mechanisms:
        return "added score"
    return "q·k, q = k" if "rotate" in mechanisms else "P[i]·P[j] / d"


def _shown(matrix: Tensor, causal: bool) -> list[list[float | None]]:
    return [
        [None if causal and key > query else float(value) for key, value in enumerate(row)]
        for query, row in enumerate(matrix)
    ]


def _is_relative(found: Tensor) -> bool:
    return bool((found[:, 1:, 1:] - found[:, :-1, :-1]).abs().max() < 1e-9)


def _at(matrix: Tensor, distance: int) -> float:
    query = max(0, -distance)
    return float(matrix[query, query + distance])


def _sampled_positions(part: Positional) -> Shown:
    """Return the positions that training samples for some sentences."""
    part.train()
    sampled = part.draw(SENTENCES, TIME)
    part.eval()
    if sampled is None:
        return Note("positions in training", "Training uses the positions 0, 1, 2, ... themselves.")
    rows = tuple(str(row) for row in range(1, SENTENCES + 1))
    values = sampled[0].double()
    return HeatMaps(
        "positions in training",
        [("", values.tolist())],
        rows,
        NUMBERS,
        "sentence",
        "token",
        "position used",
        ColourRange(0.0, float(values.max())),
    )


def _joined(found: Sequence[tuple[str, Shown]]) -> list[Shown]:
    """Prefix titles with the roles, merging roles with equal pictures.

    Curves of the decoder that are part of the encoder's are left out.
    """
    groups: list[tuple[list[str], Shown]] = []
    for role, picture in found:
        for roles, known in groups:
            if known == picture:
                roles.append(role)
                break
            if isinstance(known, Lines) and isinstance(picture, Lines) and _contains(known, picture):
                break
        else:
            groups.append(([role], picture))
    order = [HeatMaps, Lines, Note]
    groups.sort(key=lambda group: (order.index(type(group[1])), group[1].title == "positions in training"))
    return [replace(picture, title=titled(picture.title, roles)) for roles, picture in groups]


def _contains(known: Lines, other: Lines) -> bool:
    """Return whether the curves of ``other`` are part of those of ``known``."""
    if not set(other.x) <= set(known.x) or len(known.curves) != len(other.curves):
        return False
    at = {x: index for index, x in enumerate(known.x)}
    return all(
        abs((mine[at[x]] or 0.0) - (value or 0.0)) < 1e-9
        for (_, mine), (_, theirs) in zip(known.curves, other.curves, strict=True)
        for x, value in zip(other.x, theirs, strict=True)
    )


def titled(title: str, roles: Sequence[str]) -> str:
    """Return a title prefixed with its roles."""
    short = [ROLE_NAMES[role] if len(roles) < 3 else ROLE_NAMES[role].split("-")[0] for role in roles]
    names = ", ".join(short)
    return f"{names}: {title}" if title else names

"""Pictures of positional encodings: their effect on scores and embeddings of equal tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from catalogue.pictures import Curves, HeatMaps, PictureNote
from catalogue.small_model import (
    D_MODEL,
    HEADS,
    ROLE_NAMES,
    TIME,
    build_positional,
    in_role,
    incompatibility,
    small_roles,
)
from headtohead.figures.heat_map import ColourRange
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import find_positional

POSITIONS = tuple(str(position) for position in range(TIME))
SENTENCES = 8
SAMPLED_TITLE = "positions in training"

PositionalPicture = HeatMaps | Curves | PictureNote


def positional_pictures(name: str) -> list[PositionalPicture]:
    """Return the pictures of an encoding: heat maps first, equal pictures of several roles merged."""
    entry = find_positional(name)
    pictures: list[tuple[str, PositionalPicture]] = []
    for role in small_roles():
        if incompatibility(in_role("positional", name, role)) is None:
            part = build_positional(entry, role)
            pictures += [(role, picture) for picture in _role_pictures(part, role)]
    return _merge_roles(pictures)


def kernel(part: Positional, role: str) -> Tensor | None:
    """Return the effect of an encoding on equal tokens, ``[head, query, key]``, or None for no effect.

    The effects of all mechanisms are added. Bias: the bias. Rotation: the mean of q·k over all
    directions of equal q and k of length 1. Embedding: the dot products of the position vectors,
    divided by the width. Content bias: that of inputs of 0. Score: the scores of one random query per
    head, of length √d_k.
    """
    positions = torch.arange(TIME).unsqueeze(0)
    mechanisms = type(part).mechanisms_of(part.options)
    effects = []
    if (
        "embed" in mechanisms
        and role != "cross"
        and (table := _position_vectors(part, role)) is not None
    ):
        effects.append((table @ table.T / D_MODEL).unsqueeze(0))
    if "rotate" in mechanisms:
        effects.append(_mean_rotation(part, positions, role))
    if "bias" in mechanisms and (bias := part.bias(positions, positions, role, 0)) is not None:
        effects.append(bias.expand(1, 1, HEADS, TIME, TIME)[0, 0].detach().double())
    if "content_bias" in mechanisms and role != "cross":
        bias = part.content_bias(
            torch.zeros(1, 1, TIME, D_MODEL, dtype=torch.float64), TIME, role, 0
        )
        assert bias is not None
        effects.append(bias[0, 0].detach())
    if "score" in mechanisms:
        effects.append(_scores_of_one_query(part, positions, role))
    if not effects:
        return None
    total = effects[0]
    for effect in effects[1:]:
        total = total + effect
    return total


def _position_vectors(part: Positional, role: str) -> Tensor | None:
    """Return the vectors added to embeddings, ``[position, width]``, or None."""
    vectors = part.embed(torch.arange(TIME).unsqueeze(0), role)
    return None if vectors is None else vectors.expand(1, 1, TIME, D_MODEL)[0, 0].detach().double()


def _mean_rotation(part: Positional, positions: Tensor, role: str) -> Tensor:
    """Return the trace of each pair of rotations divided by the width, which is the mean over equal q and k."""
    width = part.context.geometry.key_width
    unit = torch.eye(width, dtype=torch.float64)[:, None, None, None, :].expand(-1, 1, 1, TIME, -1)
    rotated = part.rotate(unit.transpose(0, 1), positions, role, 0).transpose(0, 1).detach()
    return torch.einsum("wabqc,wabkc->qk", rotated, rotated).unsqueeze(0) / width


def _scores_of_one_query(part: Positional, positions: Tensor, role: str) -> Tensor:
    width = part.context.geometry.key_width
    generator = torch.Generator().manual_seed(7)
    q = torch.randn(HEADS, width, generator=generator, dtype=torch.float64)
    q = q / q.norm(dim=-1, keepdim=True) * width**0.5
    scores = part.score(
        q[None, None, :, None, :].expand(1, 1, -1, TIME, -1), positions, positions, role, 0
    )
    assert scores is not None
    return scores.expand(1, 1, HEADS, TIME, TIME)[0, 0].detach()


def _role_pictures(part: Positional, role: str) -> Iterator[PositionalPicture]:
    mechanisms = type(part).mechanisms_of(part.options)
    if not mechanisms & {"embed", "rotate", "bias", "content_bias", "score"}:
        yield PictureNote("", "Adds nothing: scores depend on the tokens, not on their positions.")
        return
    if "embed" in mechanisms and role == "cross":
        yield PictureNote("", "Adds to embeddings, which cross-attention does not have.")
    elif "embed" in mechanisms and (table := _position_vectors(part, role)) is not None:
        coordinates = tuple(map(str, range(D_MODEL)))
        maps = [("", table.tolist())]
        yield HeatMaps(
            "added to embeddings",
            maps,
            POSITIONS,
            coordinates,
            "position",
            "coordinate",
            "added value",
        )
    effect = kernel(part, role)
    if effect is None:
        return
    names = [f"head {head}" for head in range(len(effect))] if len(effect) > 1 else [""]
    masked = (
        effect.masked_fill(torch.ones(TIME, TIME).triu(1).bool(), torch.nan)
        if role == "decoder"
        else effect
    )
    values = [
        [[None if cell != cell else cell for cell in row] for row in matrix]
        for matrix in masked.tolist()
    ]
    title, unit = _title_and_unit(mechanisms)
    axes = ("query i", "key j") if role != "cross" else ("target i", "source j")
    yield HeatMaps(title, list(zip(names, values, strict=True)), POSITIONS, POSITIONS, *axes, unit)
    if bool((effect[:, 1:, 1:] - effect[:, :-1, :-1]).abs().max() < 1e-9):
        distances = range(1 - TIME, 1 if role == "decoder" else TIME)
        curves = [
            (name, [float(matrix.diagonal(distance)[0]) for distance in distances])
            for name, matrix in zip(names, effect, strict=True)
        ]
        yield Curves(
            "by distance",
            tuple(distances),
            curves,
            "j − i: key position relative to the query",
            unit,
        )
    if "draw" in mechanisms:
        yield _sampled_positions(part)


def _title_and_unit(mechanisms: frozenset[str]) -> tuple[str, str]:
    if "score" in mechanisms:
        return "added to scores", "score, one q"
    if "content_bias" in mechanisms:
        return "added to scores", "added score, x = 0"
    if "bias" in mechanisms:
        return "added to scores", "added score"
    return (
        ("rotated q·k", "q·k, q = k")
        if "rotate" in mechanisms
        else ("position · position", "P[i]·P[j] / d")
    )


def _sampled_positions(part: Positional) -> PositionalPicture:
    """Return the positions that training samples for some sentences."""
    part.train()
    sampled = part.draw(SENTENCES, TIME)
    part.eval()
    if sampled is None:
        return PictureNote(SAMPLED_TITLE, "Training uses the positions 0, 1, 2, ... themselves.")
    rows = tuple(str(row) for row in range(1, SENTENCES + 1))
    values = sampled[0].double()
    colours = ColourRange(0.0, float(values.max()))
    maps = [("", values.tolist())]
    return HeatMaps(
        SAMPLED_TITLE, maps, rows, POSITIONS, "sentence", "token", "position used", colours
    )


def _merge_roles(pictures: Sequence[tuple[str, PositionalPicture]]) -> list[PositionalPicture]:
    """Prefix titles with the roles, merging roles with equal pictures.

    Curves of the decoder that are part of the encoder's are omitted.
    """
    groups: list[tuple[list[str], PositionalPicture]] = []
    for role, picture in pictures:
        for roles, other in groups:
            if other == picture:
                roles.append(role)
                break
            if (
                isinstance(other, Curves)
                and isinstance(picture, Curves)
                and _contains(other, picture)
            ):
                break
        else:
            groups.append(([role], picture))
    order = [HeatMaps, Curves, PictureNote]
    groups.sort(key=lambda group: (order.index(type(group[1])), group[1].title == SAMPLED_TITLE))
    return [
        replace(picture, title=_title_with_roles(picture.title, roles)) for roles, picture in groups
    ]


def _contains(curves: Curves, part: Curves) -> bool:
    """Return whether the curves of ``part`` are part of ``curves``."""
    if not set(part.x) <= set(curves.x) or len(curves.curves) != len(part.curves):
        return False
    first = curves.x.index(part.x[0])
    return all(
        abs((value or 0.0) - (other or 0.0)) < 1e-9
        for (_, values), (_, others) in zip(curves.curves, part.curves, strict=True)
        for value, other in zip(values[first:], others, strict=False)
    )


def _title_with_roles(title: str, roles: Sequence[str]) -> str:
    names = ", ".join(
        ROLE_NAMES[role] if len(roles) < 3 else ROLE_NAMES[role].split("-")[0] for role in roles
    )
    return f"{names}: {title}" if title else names

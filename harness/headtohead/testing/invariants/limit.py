"""Every place is a place of its own up to the limit; beyond it is an error, never a clamp."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import VISIBLE, Verdict, beyond, does_not_apply, worst

FAR = 6000
"""Places that are looked at where there is no limit: more than tables usually have."""


@invariant("limit")
def places_differ_up_to_the_limit_and_end_there(subject: Subject) -> Verdict:
    """Neighbouring places are told apart up to the limit, and none beyond it is computed."""
    return worst(*(_encoding(subject, role) for role in ROLES), *(_style(subject, role) for role in ROLES))


@torch.no_grad()
def _encoding(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    limit = type(positional).limit(positional.options)
    if limit is not None and _refuses(subject, role, limit):
        return _refused(f"{role}: the encoding", limit)
    if limit is not None and not _refuses(subject, role, limit + 1):
        return _computed(f"{role}: the encoding", limit)
    if limit is None and _refuses(subject, role, FAR):
        return does_not_apply(f"{role}: the encoding refuses {FAR} places")
    places = torch.arange(FAR if limit is None else limit).unsqueeze(0)
    found = [one for one in (_embedded(subject, role, places), _turned(subject, role, places)) if one is not None]
    if not found or places.shape[1] < 2:
        return does_not_apply(f"{role}: the encoding has no vector for a place")
    apart = torch.stack([one.diff(dim=1).abs().amax(-1).amax(0) for one in found]).amax(0)
    least = float(apart.min())
    first = int(apart.argmin())
    return beyond(
        least,
        f"{role}: least difference of two neighbouring places",
        VISIBLE,
        shown=f"{role}: places {first} and {first + 1} are one: they differ by {least:.3g}",
    )


def _refuses(subject: Subject, role: str, count: int) -> bool:
    """Tell whether some hook of an encoding raises where there are ``count`` places."""
    positional = subject.positional(role)
    places = torch.arange(count).unsqueeze(0)
    try:
        _embedded(subject, role, places)
        _turned(subject, role, places)
        if count < FAR and overrides(positional, Positional, "bias"):
            positional.bias(places[:, -1:], places, role, 0)
            positional.bias(places, places, role, 0)
    except Exception:
        return True
    return False


def _embedded(subject: Subject, role: str, places: Tensor) -> Tensor | None:
    """Return what is added to embeddings, ``[member, place, width]``, if anything is."""
    found = subject.positional(role).embed(places, role)
    return None if found is None else found.expand(-1, -1, places.shape[1], -1)[:, 0].double()


def _turned(subject: Subject, role: str, places: Tensor) -> Tensor | None:
    """Return one query turned to every place, ``[member, place, width]``, if it is turned."""
    positional, geometry = subject.positional(role), subject.attention(role).context.geometry
    if not (overrides(positional, Positional, "rotate") and geometry.key_width):
        return None
    one = torch.linspace(0.5, 1.5, geometry.key_width, dtype=torch.float64)
    x = one.expand(len(subject.seeds), 1, 1, places.shape[1], -1).clone()
    turned = positional.rotate(x, places, role)
    return None if torch.equal(turned, x) else turned[:, 0, 0]


def _style(subject: Subject, role: str) -> Verdict:
    style = subject.attention(role).style
    limit = type(style).limit(style.options)
    if limit is None or not overrides(style, Attention, "scores"):
        return does_not_apply(f"{role}: the style has no limit")
    if _style_refuses(subject, style, limit):
        return _refused(f"{role}: the style", limit)
    if not _style_refuses(subject, style, limit + 1):
        return _computed(f"{role}: the style", limit)
    return Verdict("holds", 0.0, f"{role}: places beyond {limit} are refused")


def _style_refuses(subject: Subject, style: Attention, count: int) -> bool:
    """Tell whether a style's scores raise where there are ``count`` places."""
    geometry, places = style.context.geometry, torch.arange(count).unsqueeze(0)
    q = torch.zeros(len(subject.seeds), 1, geometry.heads, count, geometry.key_width, dtype=torch.float64)
    try:
        style.scores(q, q, places, places)
    except Exception:
        return True
    return False


def _refused(who: str, limit: int) -> Verdict:
    return Verdict(
        "broken",
        None,
        f"{who} has a limit of {limit} places and does not compute as many",
        shown=f"{who} refuses place {limit - 1}, which is within its limit",
    )


def _computed(who: str, limit: int) -> Verdict:
    return Verdict(
        "broken",
        None,
        f"{who} has a limit of {limit} places and computes one more",
        shown=f"{who} computes place {limit}, which is beyond its limit, and says nothing",
    )

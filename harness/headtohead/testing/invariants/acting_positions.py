"""How positions act: in every role, relative where declared, falling with distance, and up to a limit.

The check uses a single attention, so that no other layer, role or mask contributes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead.testing.extremum import Extremum, largest, maximum_of, minimum_of, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import EXACT, VISIBLE, Verdict, beyond, does_not_apply, outside, violated, within, worst

MAX_POSITIONS = 64
"""Largest number of positions with compared vectors."""

AXES = ("member", "sentence", "query")


@invariant("positions-act")
def positions_act_in_every_role(subject: Subject) -> Verdict:
    """Swapping adjacent keys changes the output if and only if positions are encoded."""
    return worst(*(_check(subject, role) for role in subject.roles))


def _check(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if not subject.attention(role).style.projects:
        return does_not_apply(f"{role}: the style has no scores")
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    order_invariant = subject.has_property(role, "order-invariant") and not subject.position_dependent(role)
    change, checked = _swap_adjacent_keys(subject, role)
    embedded = _embedded_difference(subject, role)
    if order_invariant:
        largest_change = maximum_of(
            [_largest_change(change, role), Extremum(embedded, f"{role}: {embedded:.3g} is added to embeddings")]
        )
        return within(largest_change, f"{role}: change by swapping two keys under an order-invariant encoding")
    if embedded > VISIBLE and not subject.position_dependent(role):
        return Verdict("holds", embedded, f"{role}: smallest difference between the vectors of two positions")
    if not bool(checked.any()):
        return does_not_apply(f"{role}: no query attends to two adjacent keys")
    # With clipped distances, a swap may have no effect on some queries, but never on all of them.
    per_member = change.where(checked, 0.0).flatten(1).amax(-1)
    return beyond(
        smallest(
            per_member,
            ("member",),
            lambda at: (
                f"{role}: swapping adjacent keys changes the output of any query of member {at['member']} at most"
            ),
        ),
        f"{role}: largest change of an output by swapping two adjacent keys",
    )


def _largest_change(change: Tensor, role: str) -> Extremum:
    return largest(
        change,
        AXES,
        lambda at: f"{role}: swapping two keys changes the output of query {at['query']} of sentence {at['sentence']}",
    )


@torch.no_grad()
def _swap_adjacent_keys(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return the largest change of each output, and which queries attend to two adjacent keys.

    Both ``[member, batch, query]``.
    """
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    context = subject.attention_context(role, mask=mask)
    before = attention(x, memory, context)
    largest_change = torch.zeros(mask.shape[:3], dtype=torch.float64)
    checked = torch.zeros_like(largest_change, dtype=torch.bool)
    queries = torch.arange(mask.shape[2])
    for key in range(mask.shape[3] - 1):
        order = torch.arange(mask.shape[3])
        order[[key, key + 1]] = order[[key + 1, key]]
        swapped = (x if memory is None else memory)[:, :, order]
        after = attention(*((swapped, None) if memory is None else (x, swapped)), context)
        visible = mask[..., key] & mask[..., key + 1]
        if memory is None:
            visible = visible & (queries != key) & (queries != key + 1)
        if role == "decoder":
            # An encoding for decoders need not distinguish later keys.
            visible = visible & (queries > key + 1)
        change = (after - before).abs().amax(-1)
        largest_change = torch.maximum(largest_change, change.where(visible, 0.0))
        checked |= visible
    return largest_change, checked


@torch.no_grad()
def _embedded_difference(subject: Subject, role: str) -> float:
    """Return the smallest distance between the vectors that two positions add to embeddings.

    For an order-invariant encoding: the largest entry of such a vector, which must be zero.
    """
    positional = subject.positional(role)
    limit = type(positional).limit(positional.options) or MAX_POSITIONS
    count = min(MAX_POSITIONS, limit)
    table = positional.embed(torch.arange(count).unsqueeze(0), role)
    if table is None:
        return 0.0
    rows = table.expand(-1, -1, count, -1).double().flatten(0, 1)
    if subject.has_property(role, "order-invariant"):
        return float(rows.abs().max())
    distances = torch.cdist(rows, rows) + torch.eye(rows.shape[1]) * 1e9
    return float(distances.min())


SHIFTS = (3, 1000)


@invariant("joint-shift")
def a_joint_shift_changes_nothing(subject: Subject) -> Verdict:
    """Shifting the positions of queries and keys together changes nothing under relative encodings."""
    encoded = [role for role in subject.roles if not subject.has_property(role, "order-invariant")]
    return worst(*(_check_of_shift(subject, role) for role in encoded or subject.roles))


def _check_of_shift(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    if subject.position_dependent(role):
        return does_not_apply(f"{role}: the style's own scores depend on positions")
    limit = type(positional).limit(positional.options)
    shifts = [shift for shift in SHIFTS if limit is None or limit >= shift + max(subject.times(role))]
    if not shifts:
        return does_not_apply(f"{role}: {limit} positions are too few to shift")
    if subject.has_property(role, "relative"):
        change = maximum_of([_largest_change_of_shift(subject, role, shift) for shift in shifts])
        return within(change, f"{role}: change of the output by a joint shift")
    return outside(
        f'{role}: the encoding does not declare "relative"',
        _largest_change_of_shift(subject, role, SHIFTS[0]),
        "a joint shift changes the output",
        EXACT,
    )


@torch.no_grad()
def _largest_change_of_shift(subject: Subject, role: str, shift: int) -> Extremum:
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    original = attention(x, memory, subject.attention_context(role, mask=mask))
    shifted = attention(x, memory, subject.attention_context(role, shift, mask))
    action = f"{role}: shifting all positions by {shift} changes"
    output = largest(
        (original - shifted).abs(),
        ("member", "sentence", "query", "coordinate"),
        lambda at: (
            f"{action} coordinate {at['coordinate']} of the output of query {at['query']} of sentence {at['sentence']}"
        ),
    )
    positions = torch.arange(subject.times(role)[0]).unsqueeze(0)
    positional = subject.positional(role)
    embedded = _difference(positional.embed(positions, role), positional.embed(positions + shift, role))
    return maximum_of([output, Extremum(embedded, f"{action} the vectors added to embeddings by {embedded:.3g}")])


def _difference(first: Tensor | None, second: Tensor | None) -> float:
    if first is None or second is None:
        return 0.0 if first is second else torch.inf
    return float((first - second).abs().max())


STRICT = 1e-12


@invariant("falls-with-distance")
def weights_fall_strictly_with_distance(subject: Subject) -> Verdict:
    """On equal tokens, weights fall strictly with distance, in every visible direction."""
    roles = [role for role in subject.roles if subject.has_property(role, "falls-with-distance")]
    if not roles:
        return does_not_apply('the encoding does not declare "falls-with-distance"')
    plain = [role for role in roles if subject.uses_plain_softmax(role)]
    if not plain:
        return does_not_apply("the style's weights are not a plain softmax of the scores")
    fall = minimum_of([_smallest_fall(subject, role) for role in plain])
    return beyond(fall, f"{', '.join(plain)}: smallest fall of log weights per position", STRICT)


@torch.no_grad()
def _smallest_fall(subject: Subject, role: str) -> Extremum:
    x, memory = subject.activations(role)
    equal = x[:, :, :1].expand_as(x)
    memory = None if memory is None else memory[:, :, :1].expand_as(memory)
    recorded: dict[str, Tensor] = {}
    # Without a mask, the weights depend on the encoding alone.
    subject.attention(role)(equal, memory, subject.attention_context(role), None, recorded.__setitem__)
    weights = recorded["weights"].log()
    queries, keys = weights.shape[-2:]
    key_positions, query_positions = torch.arange(keys), torch.arange(queries)[:, None]
    rise = weights.diff(dim=-1)
    after = query_positions <= key_positions[:-1]
    # Later keys are hidden from a causal decoder.
    hidden = role in subject.target_key_roles and subject.hides("future", role)
    fall = torch.where(after, torch.inf if hidden else -rise, rise)
    return smallest(
        fall,
        ("member", "sentence", "head", "query", "key"),
        lambda at: (
            f"{role}: between keys {at['key']} and {at['key'] + 1}, for the query at position "
            f"{at['query']} in head {at['head']}, the log weight falls with distance"
        ),
    )


FAR = 6000
"""Number of positions checked where there is no limit; larger than common table sizes."""


@invariant("limit")
def positions_differ_up_to_the_limit_and_raise_beyond(subject: Subject) -> Verdict:
    """Adjacent positions have different vectors up to the limit, and a position beyond it raises."""
    return worst(*(check(subject, role) for check in (_encoding, _style) for role in subject.roles))


@torch.no_grad()
def _encoding(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    limit = type(positional).limit(positional.options)
    if limit is not None and _encoding_raises(subject, role, limit):
        return _raises_within(f"{role}: the encoding", limit)
    if limit is not None and not _encoding_raises(subject, role, limit + 1):
        return _computes_beyond(f"{role}: the encoding", limit)
    if limit is None and _encoding_raises(subject, role, FAR):
        return does_not_apply(f"{role}: the encoding raises at {FAR} positions")
    positions = torch.arange(FAR if limit is None else limit).unsqueeze(0)
    vectors = [
        table
        for table in (_embedded(subject, role, positions), _rotated(subject, role, positions))
        if table is not None
    ]
    if not vectors or positions.shape[1] < 2:
        return does_not_apply(f"{role}: the encoding has no vector per position")
    differences = torch.stack([table.diff(dim=1).abs().amax(-1).amax(0) for table in vectors]).amax(0)
    difference, first = float(differences.min()), int(differences.argmin())
    description = f"{role}: positions {first} and {first + 1} are the same: they differ by {difference:.3g}"
    return beyond(Extremum(difference, description), f"{role}: smallest difference between two adjacent positions")


def _encoding_raises(subject: Subject, role: str, count: int) -> bool:
    """Return whether a hook of the encoding raises an exception at ``count`` positions."""
    positional = subject.positional(role)
    positions = torch.arange(count).unsqueeze(0)
    try:
        _embedded(subject, role, positions)
        _rotated(subject, role, positions)
        if overrides(positional, Positional, "bias"):
            # The first and the last query have every distance.
            positional.bias(positions[:, [0, -1]], positions, role, 0)
    except Exception:
        return True
    return False


def _embedded(subject: Subject, role: str, positions: Tensor) -> Tensor | None:
    """Return the vectors that are added to embeddings, ``[member, position, width]``, or None."""
    table = subject.positional(role).embed(positions, role)
    return None if table is None else table.expand(-1, -1, positions.shape[1], -1)[:, 0].double()


def _rotated(subject: Subject, role: str, positions: Tensor) -> Tensor | None:
    """Return a fixed query rotated to every position, ``[member, position, width]``, or None."""
    positional, geometry = subject.positional(role), subject.attention(role).context.geometry
    if not (overrides(positional, Positional, "rotate") and geometry.key_width):
        return None
    query = torch.linspace(0.5, 1.5, geometry.key_width, dtype=torch.float64)
    x = query.expand(len(subject.seeds), 1, 1, positions.shape[1], -1).clone()
    rotated = positional.rotate(x, positions, role)
    return None if torch.equal(rotated, x) else rotated[:, 0, 0]


def _style(subject: Subject, role: str) -> Verdict:
    style = subject.attention(role).style
    limit = type(style).limit(style.options)
    if limit is None or not overrides(style, Attention, "scores"):
        return does_not_apply(f"{role}: the style has no limit")
    if _style_raises(subject, style, limit):
        return _raises_within(f"{role}: the style", limit)
    if not _style_raises(subject, style, limit + 1):
        return _computes_beyond(f"{role}: the style", limit)
    return Verdict("holds", 0.0, f"{role}: positions beyond {limit} raise an exception")


def _style_raises(subject: Subject, style: Attention, count: int) -> bool:
    """Return whether a style's scores raise an exception at ``count`` positions."""
    geometry, positions = style.context.geometry, torch.arange(count).unsqueeze(0)
    q = torch.zeros(len(subject.seeds), 1, geometry.heads, count, geometry.key_width, dtype=torch.float64)
    try:
        style.scores(q, q, positions, positions)
    except Exception:
        return True
    return False


def _raises_within(entry: str, limit: int) -> Verdict:
    return violated(f"{entry} raises an exception at position {limit - 1}, within its limit of {limit}")


def _computes_beyond(entry: str, limit: int) -> Verdict:
    return violated(f"{entry} computes position {limit}, beyond its limit of {limit}, without an error")

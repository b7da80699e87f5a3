"""How positions act: in every role, relative where declared, falling with distance, up to a limit, and sampled.

The checks use a single attention, so that no other layer, role or mask contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from headtohead.errors import HeadToHeadError
from headtohead.model.attention import overrides
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead.testing.invariant import role_invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import (
    EXACT,
    VISIBLE,
    Verdict,
    beyond,
    does_not_apply,
    outside,
    violated,
    within,
    worst,
)

MAX_POSITIONS = 64
"""Largest number of positions with compared vectors."""

FAR = 6000
"""Number of positions checked where there is no limit; larger than common table sizes."""

SHIFTS = (3, 1000)
STRICT = 1e-12
BATCH, TIME = 5, 6
"""Sentences and tokens of the sampled positions."""

OUTPUT = ("member", "sentence", "query", "coordinate")
COUNTS_ROWS = "positions are rows of the batch"


@role_invariant("positions-act")
def positions_act_in_every_role(subject: Subject, role: str) -> Verdict:
    """Swapping adjacent keys changes the output if and only if positions are encoded."""
    if not subject.attention(role).style.projects:
        return does_not_apply("the style has no scores")
    if subject.positional(role).by_row:
        return does_not_apply(COUNTS_ROWS)
    change, checked = _swap_adjacent_keys(subject, role)
    embedded = _embedded_difference(subject, role)
    style = subject.attention(role).style
    own_scores = style.depends_on_order(style.options) and not overrides(
        style, Attention, "mix_embeddings"
    )
    if "order-invariant" in subject.positional(role).properties and not own_scores:
        return worst(
            within(
                change, "change by swapping two keys under an order-invariant encoding", OUTPUT[:3]
            ),
            within(embedded, "largest number that an order-invariant encoding adds to embeddings"),
        )
    if embedded > VISIBLE and not own_scores:
        return Verdict(
            "holds", embedded, "smallest difference between the vectors of two positions"
        )
    if not bool(checked.any()):
        return does_not_apply("no query attends to two adjacent keys")
    # With clipped distances, a swap may have no effect on some queries, but never on all of them.
    per_member = change.where(checked, 0.0).flatten(1).amax(-1)
    declared = ", as depends_on_order of the style is true" * own_scores
    return beyond(
        per_member,
        f"largest change of an output by swapping two adjacent keys{declared}",
        OUTPUT[:1],
    )


@torch.no_grad()
def _swap_adjacent_keys(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return the largest change of each output, and which queries attend to two adjacent keys.

    Both ``[member, batch, query]``.
    """
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    context = subject.attention_context(role, mask=mask)
    before, _ = attention(x, memory, context)
    largest_change = torch.zeros(mask.shape[:3], dtype=torch.float64)
    checked = torch.zeros_like(largest_change, dtype=torch.bool)
    queries = torch.arange(mask.shape[2])
    for key in range(mask.shape[3] - 1):
        order = torch.arange(mask.shape[3])
        order[[key, key + 1]] = order[[key + 1, key]]
        swapped = (x if memory is None else memory)[:, :, order]
        after, _ = attention(*((swapped, None) if memory is None else (x, swapped)), context)
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
    count = min(MAX_POSITIONS, subject.limit(role) or MAX_POSITIONS)
    vectors = _embedded(subject, role, torch.arange(count).unsqueeze(0))
    if vectors is None:
        return 0.0
    if "order-invariant" in subject.positional(role).properties:
        return float(vectors.abs().max())
    distances = torch.cdist(vectors, vectors) + torch.eye(vectors.shape[1]) * 1e9
    return float(distances.min())


@role_invariant("joint-shift")
def a_joint_shift_changes_nothing(subject: Subject, role: str) -> Verdict:
    """Shifting the positions of queries and keys together changes nothing under relative encodings."""
    encoded = [
        other
        for other in subject.roles
        if "order-invariant" not in subject.positional(other).properties
    ]
    if encoded and role not in encoded:
        return does_not_apply("the encoding is order-invariant")
    if subject.positional(role).by_row:
        return does_not_apply(COUNTS_ROWS)
    if subject.attention(role).style.position_dependent:
        return does_not_apply("the style's own scores depend on positions")
    limit = subject.limit(role)
    shifts = [
        shift for shift in SHIFTS if limit is None or limit >= shift + max(subject.times(role))
    ]
    if not shifts:
        return does_not_apply(f"{limit} positions are too few to shift")
    if "relative" in subject.positional(role).properties:
        return worst(
            *(
                verdict
                for shift in shifts
                for output, embedded in [_changes_by_shift(subject, role, shift)]
                for verdict in (
                    within(output, f"change of the output by a joint shift of {shift}", OUTPUT),
                    within(
                        embedded,
                        f"change of the vectors added to embeddings by a joint shift of {shift}",
                    ),
                )
            )
        )
    output, embedded = _changes_by_shift(subject, role, SHIFTS[0])
    largest = [float(output.max()), embedded]
    return outside(
        'the encoding does not declare "relative"',
        largest,
        "a joint shift changes the output",
        EXACT,
    )


@torch.no_grad()
def _changes_by_shift(subject: Subject, role: str, shift: int) -> tuple[Tensor, float]:
    """Return the changes of the output, and the largest change of the vectors that are added to embeddings."""
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    original, _ = attention(x, memory, subject.attention_context(role, mask=mask))
    shifted, _ = attention(x, memory, subject.attention_context(role, shift, mask))
    positions = torch.arange(subject.times(role)[0]).unsqueeze(0)
    first, second = (
        subject.positional(role).embed(at, role) for at in (positions, positions + shift)
    )
    if first is None or second is None:
        embedded = 0.0 if first is second else torch.inf
    else:
        embedded = float((first - second).abs().max())
    return (original - shifted).abs(), embedded


@role_invariant("falls-with-distance")
@torch.no_grad()
def weights_fall_strictly_with_distance(subject: Subject, role: str) -> Verdict:
    """On equal tokens, weights fall strictly with distance, in every visible direction."""
    if "falls-with-distance" not in subject.positional(role).properties:
        return does_not_apply('the encoding does not declare "falls-with-distance"')
    style, hooks = (
        subject.attention(role).style,
        ("mix_tokens", "scores", "mix_scores", "normalise", "mix"),
    )
    if not style.projects or any(overrides(style, Attention, name) for name in hooks):
        return does_not_apply("the style's weights are not a plain softmax of the tokens' scores")
    x, memory = (
        None if side is None else side[:, :, :1].expand_as(side)
        for side in subject.activations(role)
    )
    recorded: dict[str, Tensor] = {}
    # Without a mask, the weights depend on the encoding alone.
    subject.attention(role)(x, memory, subject.attention_context(role), None, recorded.__setitem__)
    weights = recorded["weights"].log()
    queries, keys = weights.shape[-2:]
    rise = weights.diff(dim=-1)
    after = torch.arange(queries)[:, None] <= torch.arange(keys)[:-1]
    # Later keys are hidden from a causal decoder.
    hidden = role in subject.target_key_roles and subject.hides("future", role)
    fall = torch.where(after, torch.inf if hidden else -rise, rise)
    axes = ("member", "sentence", "head", "query", "key")
    return beyond(fall, "smallest fall of log weights per position", axes, STRICT)


@role_invariant("limit", scope="entry")
@torch.no_grad()
def positions_differ_up_to_the_limit_and_raise_beyond(subject: Subject, role: str) -> Verdict:
    """Adjacent positions have different vectors up to the limit, and a position beyond it raises."""
    return worst(_limit_of_encoding(subject, role), _limit_of_style(subject, role))


def _limit_of_encoding(subject: Subject, role: str) -> Verdict:
    positional, limit = subject.positional(role), subject.limit(role)
    if subject.positional(role).by_row:
        return does_not_apply(COUNTS_ROWS)

    def compute(count: int) -> None:
        positions = torch.arange(count).unsqueeze(0)
        _embedded(subject, role, positions)
        _rotated(subject, role, positions)
        if overrides(positional, Positional, "bias"):
            # The first and the last query have every distance.
            positional.bias(positions[:, [0, -1]], positions, role, 0)

    if limit is not None and (wrong := _wrong_limit("the encoding", limit, compute)):
        return wrong
    if limit is None and _raises(compute, FAR):
        return does_not_apply(f"the encoding raises at {FAR} positions")
    positions = torch.arange(limit or FAR).unsqueeze(0)
    vectors = [
        table
        for table in (_embedded(subject, role, positions), _rotated(subject, role, positions))
        if table is not None
    ]
    if not vectors or positions.shape[1] < 2:
        return does_not_apply("the encoding has no vector per position")
    differences = torch.stack([table.diff(dim=1).abs().amax(-1).amax(0) for table in vectors]).amax(
        0
    )
    return beyond(differences, "smallest difference between a position and the next", ("position",))


def _limit_of_style(subject: Subject, role: str) -> Verdict:
    style = subject.attention(role).style
    limit = type(style).limit(style.options)
    if limit is None or not overrides(style, Attention, "scores"):
        return does_not_apply("the style has no limit")

    def compute(count: int) -> None:
        geometry, positions = style.context.geometry, torch.arange(count).unsqueeze(0)
        q = torch.zeros(
            len(subject.seeds), 1, geometry.heads, count, geometry.key_width, dtype=torch.float64
        )
        style.scores(q, q, positions, positions)

    holds = Verdict("holds", 0.0, f"positions beyond {limit} raise an exception")
    return _wrong_limit("the style", limit, compute) or holds


def _wrong_limit(entry: str, limit: int, compute: Callable[[int], object]) -> Verdict | None:
    """Return a violation unless computing ``limit`` positions works, and one more raises an exception."""
    if _raises(compute, limit):
        return violated(
            f"{entry} raises an exception at position {limit - 1}, within its limit of {limit}"
        )
    if not _raises(compute, limit + 1):
        return violated(
            f"{entry} computes position {limit}, beyond its limit of {limit}, without an error"
        )
    return None


def _raises(compute: Callable[[int], object], count: int) -> bool:
    try:
        compute(count)
    except (
        HeadToHeadError,
        IndexError,
        RuntimeError,
        ValueError,
    ):  # other errors are faults of the code, not a limit
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
    rotated = positional.rotate(x, positions, role, 0)
    return None if torch.equal(rotated, x) else rotated[:, 0, 0]


@role_invariant("sampled-positions", scope="entry")
def sampled_positions_rise_and_belong_to_their_member(subject: Subject, role: str) -> Verdict:
    """Sampled positions rise along a sentence, differ by pass and member, and depend on the seed alone."""
    if role == "cross" or not overrides(subject.positional(role), Positional, "draw"):
        return does_not_apply("the encoding samples no positions")
    _, stack = _samples(subject, role, subject.seeds)
    first, shape = stack[0], (len(subject.seeds), BATCH, TIME)
    if first.shape != shape:
        return violated(f"expected positions of shape {list(shape)}, got {list(first.shape)}")
    if first.is_floating_point():
        return violated("positions are not integers")
    if bool((first < 0).any()):
        return violated("a position is negative")
    if not bool((first.diff(dim=-1) > 0).all()):
        return violated("positions do not rise")
    _, again = _samples(subject, role, subject.seeds)
    if not all(map(torch.equal, stack, again)):
        return violated("positions differ between two models with the same seeds")
    if all(torch.equal(first, sample) for sample in stack[1:]):
        return violated("every pass samples the same positions")
    for member, seed in enumerate(subject.seeds):
        _, alone = _samples(subject, role, [seed])
        if not all(
            torch.equal(single[0], stacked[member])
            for single, stacked in zip(alone, stack, strict=True)
        ):
            return violated(f"member {member} samples other positions alone than in the stack")
    if len(subject.seeds) > 1 and all(torch.equal(sample[0], sample[1]) for sample in stack):
        return violated("two members sample the same positions")
    model, _ = _samples(subject, role, subject.seeds, count=1)
    loaded, _ = _samples(subject, role, subject.seeds, count=0)
    loaded.load_state_dict(model.state_dict())
    if not torch.equal(_draw(loaded, role), stack[1]):
        return violated("after loading a checkpoint the random stream restarts")
    return Verdict("holds", 0.0, "samples that differ from the member's own")


def _samples(
    subject: Subject, role: str, seeds: Sequence[int], count: int = 3
) -> tuple[Transformer, list[Tensor]]:
    """Return a new model in training mode, and the first positions that its encoding samples."""
    model = Transformer(subject.config, seeds, *subject.vocab_sizes).train()
    return model, [_draw(model, role) for _ in range(count)]


def _draw(model: Transformer, role: str) -> Tensor:
    positional = model.positionals[role]
    assert isinstance(positional, Positional)
    sample = positional.draw(BATCH, TIME)
    return torch.arange(TIME).expand(1, BATCH, TIME) if sample is None else sample

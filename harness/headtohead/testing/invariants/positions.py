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
from headtohead.testing.subject import Subject, key_inputs, with_key_inputs
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

LIMIT_ERRORS = (HeadToHeadError, IndexError, RuntimeError, ValueError)
"""Errors beyond a limit; others are faults of the code."""

SHIFTS = (3, 1000)
STRICT = 1e-12
BATCH = 5
"""Sentences of the sampled positions."""
TIME = 6
"""Tokens of the sampled positions."""
PASSES = 3
"""Passes in training mode whose sampled positions are compared."""

OUTPUT = ("member", "sentence", "query", "coordinate")
COUNTS_ROWS = "positions are rows of the batch"


@role_invariant("positions-act")
def positions_act_in_every_role(subject: Subject, role: str) -> Verdict:
    """Swapping adjacent keys changes the output if and only if positions are encoded."""
    if not subject.attention(role).style.projects:
        return does_not_apply("the style has no scores")
    if subject.positional(role).by_row:
        return does_not_apply(COUNTS_ROWS)
    style = subject.attention(role).style
    if overrides(style, Attention, "mix_feed_forward") or overrides(style, Attention, "mix_inner"):
        return does_not_apply("the style may mix tokens in the feed-forward network alone")
    change, checked = _swap_adjacent_keys(subject, role)
    embedded = _embedded_difference(subject, role)
    style_has_order = style.depends_on_order(style.options)
    if overrides(style, Attention, "mix_embeddings"):
        style_has_order = False
    if not style_has_order:
        if "order-invariant" in subject.positional(role).properties:
            quantity = "change by swapping two keys under an order-invariant encoding"
            by_swap = within(change, quantity, OUTPUT[:3])
            quantity = "largest number that an order-invariant encoding adds to embeddings"
            return worst(by_swap, within(embedded, quantity))
        if embedded > VISIBLE:
            quantity = "smallest difference between the vectors of two positions"
            return Verdict("holds", embedded, quantity)
    if not bool(checked.any()):
        return does_not_apply("no query attends to two adjacent keys")
    # With clipped distances, a swap may have no effect on some queries, but never on all of them.
    per_member = change.where(checked, 0.0).flatten(1).amax(-1)
    quantity = "largest change of an output by swapping two adjacent keys"
    if style_has_order:
        quantity += ", as depends_on_order of the style is true"
    return beyond(per_member, quantity, OUTPUT[:1])


@torch.no_grad()
def _swap_adjacent_keys(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return the largest change of each output, and which queries attend to two adjacent keys.

    Both ``[member, batch, query]``.
    """
    attention = subject.attention(role)
    mask = subject.mask(role)
    x, memory = subject.activations(role)
    keys = key_inputs(x, memory)
    context = subject.attention_context(role, mask=mask)
    before, _ = attention(x, memory, context)
    largest_change = torch.zeros(mask.shape[:3], dtype=torch.float64)
    checked = torch.zeros_like(largest_change, dtype=torch.bool)
    queries = torch.arange(mask.shape[2])
    for key in range(mask.shape[3] - 1):
        order = torch.arange(mask.shape[3])
        order[[key, key + 1]] = order[[key + 1, key]]
        swapped = with_key_inputs(x, memory, keys[:, :, order])
        after, _ = attention(*swapped, context)
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
    with_positions = []
    for name in subject.roles:
        if "order-invariant" not in subject.positional(name).properties:
            with_positions.append(name)
    if with_positions and role not in with_positions:
        return does_not_apply("the encoding is order-invariant")
    if subject.positional(role).by_row:
        return does_not_apply(COUNTS_ROWS)
    if subject.attention(role).style.position_dependent:
        return does_not_apply("the style's own scores depend on positions")
    limit = subject.limit(role)
    time = max(subject.times(role))
    shifts = [shift for shift in SHIFTS if limit is None or limit >= shift + time]
    if not shifts:
        return does_not_apply(f"{limit} positions are too few to shift")
    if "relative" not in subject.positional(role).properties:
        output, embedded = _changes_by_shift(subject, role, SHIFTS[0])
        return outside(
            'the encoding does not declare "relative"',
            [float(output.max()), embedded],
            "a joint shift changes the output",
            EXACT,
        )
    verdicts = []
    for shift in shifts:
        output, embedded = _changes_by_shift(subject, role, shift)
        by = f"by a joint shift of {shift}"
        verdicts.append(within(output, f"change of the output {by}", OUTPUT))
        verdicts.append(within(embedded, f"change of the vectors added to embeddings {by}"))
    return worst(*verdicts)


@torch.no_grad()
def _changes_by_shift(subject: Subject, role: str, shift: int) -> tuple[Tensor, float]:
    """Return the changes of the output, and the largest change of the vectors that are added to embeddings."""
    attention = subject.attention(role)
    mask = subject.mask(role)
    x, memory = subject.activations(role)
    original, _ = attention(x, memory, subject.attention_context(role, mask=mask))
    shifted, _ = attention(x, memory, subject.attention_context(role, shift, mask))
    change = (original - shifted).abs()
    queries, _ = subject.times(role)
    positions = torch.arange(queries).unsqueeze(0)
    first = subject.positional(role).embed(positions, role)
    second = subject.positional(role).embed(positions + shift, role)
    if first is None and second is None:
        return change, 0.0
    if first is None or second is None:
        return change, torch.inf
    return change, float((first - second).abs().max())


@role_invariant("falls-with-distance")
@torch.no_grad()
def weights_fall_strictly_with_distance(subject: Subject, role: str) -> Verdict:
    """On equal tokens, weights fall strictly with distance, in every visible direction."""
    if "falls-with-distance" not in subject.positional(role).properties:
        return does_not_apply('the encoding does not declare "falls-with-distance"')
    style = subject.attention(role).style
    hooks = ("mix_tokens", "mix_projections", "scores", "mix_scores", "normalise", "mix")
    if not style.projects or any(overrides(style, Attention, name) for name in hooks):
        return does_not_apply("the style's weights are not a plain softmax of the tokens' scores")
    x, memory = subject.activations(role)
    equal_x = x[:, :, :1].expand_as(x)
    equal_memory = None if memory is None else memory[:, :, :1].expand_as(memory)
    # Without a mask, the weights depend on the encoding alone.
    context = subject.attention_context(role)
    recorded: dict[str, Tensor] = {}
    subject.attention(role)(equal_x, equal_memory, context, None, recorded.__setitem__)
    weights = recorded["weights"].log()
    queries, keys = weights.shape[-2:]
    rise = weights.diff(dim=-1)
    is_after = torch.arange(queries)[:, None] <= torch.arange(keys)[:-1]
    # Later keys are hidden from a causal decoder.
    is_hidden = role in subject.target_key_roles and subject.hides("future", role)
    fall = torch.where(is_after, torch.inf if is_hidden else -rise, rise)
    axes = ("member", "sentence", "head", "query", "key")
    return beyond(fall, "smallest fall of log weights per position", axes, STRICT)


@role_invariant("limit", scope="entry")
@torch.no_grad()
def positions_differ_up_to_the_limit_and_raise_beyond(subject: Subject, role: str) -> Verdict:
    """Adjacent positions have different vectors up to the limit, and a position beyond it raises."""
    return worst(_limit_of_encoding(subject, role), _limit_of_style(subject, role))


def _limit_of_encoding(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    limit = subject.limit(role)
    if positional.by_row:
        return does_not_apply(COUNTS_ROWS)

    def compute(count: int) -> None:
        positions = torch.arange(count).unsqueeze(0)
        _embedded(subject, role, positions)
        _rotated(subject, role, positions)
        if overrides(positional, Positional, "bias"):
            # The first and the last query have every distance.
            positional.bias(positions[:, [0, -1]], positions, role, 0)

    if limit is None:
        if _raises(compute, FAR):
            return does_not_apply(f"the encoding raises at {FAR} positions")
    else:
        wrong = _wrong_limit("the encoding", limit, compute)
        if wrong is not None:
            return wrong
    positions = torch.arange(limit or FAR).unsqueeze(0)
    differences = []
    for vectors in (_embedded(subject, role, positions), _rotated(subject, role, positions)):
        if vectors is not None:
            differences.append(vectors.diff(dim=1).abs().amax(-1).amax(0))
    if not differences or positions.shape[1] < 2:
        return does_not_apply("the encoding has no vector per position")
    largest = torch.stack(differences).amax(0)
    return beyond(largest, "smallest difference between a position and the next", ("position",))


def _limit_of_style(subject: Subject, role: str) -> Verdict:
    style = subject.attention(role).style
    limit = type(style).limit(style.options)
    if limit is None or not overrides(style, Attention, "scores"):
        return does_not_apply("the style has no limit")

    def compute(count: int) -> None:
        geometry = style.context.geometry
        positions = torch.arange(count).unsqueeze(0)
        shape = (len(subject.seeds), 1, geometry.heads, count, geometry.key_width)
        q = torch.zeros(shape, dtype=torch.float64)
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
    except LIMIT_ERRORS:
        return True
    return False


def _embedded(subject: Subject, role: str, positions: Tensor) -> Tensor | None:
    """Return the vectors that are added to embeddings, ``[member, position, width]``, or None."""
    table = subject.positional(role).embed(positions, role)
    if table is None:
        return None
    return table.expand(-1, -1, positions.shape[1], -1)[:, 0].double()


def _rotated(subject: Subject, role: str, positions: Tensor) -> Tensor | None:
    """Return a fixed query rotated to every position, ``[member, position, width]``, or None."""
    positional = subject.positional(role)
    width = subject.attention(role).context.geometry.key_width
    if width == 0 or not overrides(positional, Positional, "rotate"):
        return None
    query = torch.linspace(0.5, 1.5, width, dtype=torch.float64)
    x = query.expand(len(subject.seeds), 1, 1, positions.shape[1], -1).clone()
    rotated = positional.rotate(x, positions, role, 0)
    if torch.equal(rotated, x):
        return None
    return rotated[:, 0, 0]


@role_invariant("sampled-positions", scope="entry")
def sampled_positions_rise_and_belong_to_their_member(subject: Subject, role: str) -> Verdict:
    """Sampled positions rise along a sentence, differ by pass and member, and depend on the seed alone."""
    if role == "cross" or not overrides(subject.positional(role), Positional, "draw"):
        return does_not_apply("the encoding samples no positions")
    samples = _samples(subject, role, subject.seeds)
    problem = (
        _wrong_positions(samples[0], len(subject.seeds))
        or _wrong_randomness(subject, role, samples)
        or _wrong_after_loading(subject, role, samples)
    )
    if problem is not None:
        return violated(problem)
    return Verdict("holds", 0.0, "samples that differ from the member's own")


def _wrong_positions(sample: Tensor, members: int) -> str | None:
    """Return why the sampled positions of a pass are no positions, or None."""
    shape = (members, BATCH, TIME)
    if sample.shape != shape:
        return f"expected positions of shape {list(shape)}, got {list(sample.shape)}"
    if sample.is_floating_point():
        return "positions are not integers"
    if bool((sample < 0).any()):
        return "a position is negative"
    if not bool((sample.diff(dim=-1) > 0).all()):
        return "positions do not rise"
    return None


def _wrong_randomness(subject: Subject, role: str, samples: Tensor) -> str | None:
    """Return why the samples of several passes do not depend on seed and pass as they must, or None."""
    if not torch.equal(samples, _samples(subject, role, subject.seeds)):
        return "positions differ between two models with the same seeds"
    if bool((samples == samples[:1]).all()):
        return "every pass samples the same positions"
    for member, seed in enumerate(subject.seeds):
        alone = _samples(subject, role, [seed])
        if not torch.equal(alone[:, 0], samples[:, member]):
            return f"member {member} samples other positions alone than in the stack"
    if len(subject.seeds) > 1 and torch.equal(samples[:, 0], samples[:, 1]):
        return "two members sample the same positions"
    return None


def _wrong_after_loading(subject: Subject, role: str, samples: Tensor) -> str | None:
    """Return why a model does not continue the samples of another one whose state it loads, or None."""
    model = _model_in_training(subject, subject.seeds)
    _draw(model, role)
    loaded = _model_in_training(subject, subject.seeds)
    loaded.load_state_dict(model.state_dict())
    if not torch.equal(_draw(loaded, role), samples[1]):
        return "after loading a checkpoint the random stream restarts"
    return None


def _samples(subject: Subject, role: str, seeds: Sequence[int]) -> Tensor:
    """Return the positions that the encoding of a new model samples, ``[pass, member, sentence, token]``."""
    model = _model_in_training(subject, seeds)
    return torch.stack([_draw(model, role) for _ in range(PASSES)])


def _model_in_training(subject: Subject, seeds: Sequence[int]) -> Transformer:
    return Transformer(subject.config, seeds, *subject.vocab_sizes).train()


def _draw(model: Transformer, role: str) -> Tensor:
    """Return the positions that an encoding samples in a pass, ``[member, sentence, token]``."""
    positional = model.positionals[role]
    assert isinstance(positional, Positional)
    sample = positional.draw(BATCH, TIME)
    if sample is None:
        return torch.arange(TIME).expand(1, BATCH, TIME)
    return sample

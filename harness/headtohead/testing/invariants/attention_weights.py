"""What the weights show: exactly the visible keys, nothing in fully masked rows, and rows that sum to one.

With the mask value ``-inf`` such a row is zero and so is its output. With ``-1e9`` in place of every
score, the row is uniform, padding and future included. With 1e9 subtracted from every score
(``additive``), the row is the softmax of its unmasked scores.

The scale ``key_width ** -0.5`` exists for that purpose (Vaswani et al. 2017, section 3.2.1). A style
whose scores are not scaled products (of unit vectors, of feature maps) declares its own standard
deviation as ``temperature``; a style without the scale, such as T5's, declares ``None``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.plugins.attention import Attention
from headtohead.testing.extremum import Extremum, largest, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import MASK_VALUES
from headtohead.testing.kernels import KERNELS, force_kernel
from headtohead.testing.subject import Subject, with_mask_value
from headtohead.testing.verdict import EXACT, Verdict, beyond, does_not_apply, within, worst

AXES = ("member", "sentence", "query", "key")


@invariant("mask-obeyed")
def queries_depend_on_exactly_the_visible_keys(subject: Subject) -> Verdict:
    """Changing a key changes the output of a query if and only if the mask shows the key to it."""
    return worst(*(_check(subject, role) for role in subject.roles))


def _check(subject: Subject, role: str) -> Verdict:
    if not subject.attention(role).style.projects:
        return does_not_apply(f"{role}: the style masks its inputs itself")
    change = _output_changes(subject, role)
    mask = subject.mask(role)
    other = torch.ones_like(mask)
    if subject.attention(role).self_attention:
        other = other & ~torch.eye(mask.shape[-1], dtype=torch.bool)
    has_key = mask.any(-1, keepdim=True)

    def describe(at: dict[str, int]) -> str:
        return (
            f"{role}: changing key {at['key']} of sentence {at['sentence']} changes the output of query {at['query']}"
        )

    hidden = largest(change * (~mask & other & has_key), AXES, describe)
    visible = smallest(change.where(mask & other, torch.inf), AXES, lambda at: describe(at) + " at most")
    return worst(
        within(hidden, f"{role}: change of an output by a hidden key"),
        beyond(_finite(visible), f"{role}: smallest change of an output by a visible key", EXACT),
    )


def _finite(extremum: Extremum) -> Extremum:
    """Replace the infinity that results where a mask shows every query only its own key."""
    return Extremum(1.0, extremum.description) if extremum.number == torch.inf else extremum


@torch.no_grad()
def _output_changes(subject: Subject, role: str) -> Tensor:
    """Return the change of each output by changing each key, ``[member, batch, query, key]``."""
    attention = subject.attention(role)
    x, memory = subject.activations(role)
    context = subject.attention_context(role, mask=subject.mask(role))
    before = attention(x, memory, context)
    changes = []
    for key in range(subject.times(role)[1]):
        inputs = (x if memory is None else memory).clone()
        inputs[:, :, key] = inputs[:, :, key].flip(-1) + 0.5
        after = attention(*((inputs, None) if memory is None else (x, inputs)), context)
        changes.append((after - before).abs().amax(-1))
    return torch.stack(changes, dim=-1)


ROUNDING = 1e-5
"""Accuracy of outputs and gradients after 1e9 was subtracted from float64 scores."""


@invariant("masked-rows")
def fully_masked_rows_are_predictable(subject: Subject) -> Verdict:
    """Fully masked rows give zero under -inf and a uniform row under -1e9, on every path.

    Where the style normalises or mixes by itself, only the zero row under -inf is predicted.
    """
    roles = [role for role in subject.roles if subject.attention(role).style.projects]
    if not roles:
        return does_not_apply("the style has no scores")
    verdicts = []
    for mask_value in MASK_VALUES:
        with with_mask_value(subject.model, mask_value):
            verdicts += [
                _check_masked_rows(subject, role, mask_value)
                for role in roles
                if mask_value == "-inf" or _normalised_by_core(subject, role)
            ]
    return worst(*verdicts)


@invariant("masked-keys")
def a_masked_key_has_no_weight(subject: Subject) -> Verdict:
    """Under -inf, the weight of a masked key is exactly zero, also under a random mask."""
    roles = [role for role in subject.roles if subject.attention(role).style.projects]
    if not roles:
        return does_not_apply("the style masks its inputs and has no scores")
    with with_mask_value(subject.model, "-inf"):
        return worst(*(_check_masked_keys(subject, role) for role in roles))


@torch.no_grad()
def _check_masked_keys(subject: Subject, role: str) -> Verdict:
    mask, _ = _random_mask(subject, role)
    x, memory = subject.activations(role)
    recorded: dict[str, Tensor] = {}
    context = subject.attention_context(role, mask=mask)
    subject.attention(role)(x, memory, context, None, recorded.__setitem__)
    hidden = ~mask.unsqueeze(2).expand_as(recorded["weights"])
    weight = largest(
        recorded["weights"].abs() * hidden,
        ("member", "sentence", "head", "query", "key"),
        lambda at: f"{role}: query {at['query']} in head {at['head']} weights the masked key {at['key']}",
    )
    return within(weight, f"{role}: largest weight of a masked key", 0.0)


def _normalised_by_core(subject: Subject, role: str) -> bool:
    """Return whether the core masks and normalises the scores of a role, and the style does not."""
    style = subject.attention(role).style
    own = overrides(style, Attention, "normalise") or overrides(style, Attention, "mix")
    return style.projects and not own


def _check_masked_rows(subject: Subject, role: str, mask_value: str) -> Verdict:
    attention = subject.attention(role)
    mask, without_key = _random_mask(subject, role)
    context = subject.attention_context(role, mask=mask)
    x, memory = subject.activations(role)
    inputs = [tensor.requires_grad_() for tensor in (x, memory) if tensor is not None]
    recorded: dict[str, Tensor] = {}
    explicit = attention(x, memory, context, None, recorded.__setitem__)
    weights = recorded["weights"]
    predicted = {
        "-inf": lambda: torch.zeros_like(weights),
        "-1e9": lambda: torch.full_like(weights, 1 / mask.shape[-1]),
        "additive": lambda: recorded["scores"].softmax(-1),
    }[mask_value]()
    rows = without_key.unsqueeze(2).expand(weights.shape[:-1])
    differences = [(weights - predicted)[rows].detach()]
    expected_gradients = _gradients(explicit, inputs)
    for kernel in KERNELS:
        with force_kernel(kernel):
            fused = attention(x, memory, context)
        differences.append((fused - explicit).detach())
        differences += [
            gradient - expected
            for gradient, expected in zip(_gradients(fused, inputs), expected_gradients, strict=True)
        ]
    # torch's max returns NaN if any entry is NaN; Python's max does not.
    largest_difference = float(torch.stack([difference.abs().max() for difference in differences]).max())
    bound = ROUNDING if mask_value == "additive" else EXACT
    return within(
        largest_difference, f"{role}, mask value {mask_value}: difference of masked rows from prediction", bound
    )


def _gradients(output: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output.square().sum(), inputs, allow_unused=True, materialize_grads=True)


def _random_mask(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return a random mask, and which of its rows ``[member, batch, query]`` have no visible key."""
    queries, keys = subject.times(role)
    generator = torch.Generator().manual_seed(19)
    shape = (*subject.sentences.source_lengths.shape, queries, keys)
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[:, :, 0] = False
    mask[:, :, 1:2, 0] = True
    return mask, ~mask.any(-1)


ROW = ("member", "sentence", "head", "query")


@invariant("rows-sum-to-one")
def rows_of_weights_sum_to_one(subject: Subject) -> Verdict:
    """Every row of weights with a visible key sums to one and is not negative, as the style declares."""
    roles = [role for role in subject.roles if subject.attention(role).style.weights != "signed"]
    if not roles:
        return does_not_apply('the style declares its weights "signed"')
    return worst(*(_check_rows(subject, role) for role in roles))


@invariant("weights-times-values")
def weights_times_values_are_the_output(subject: Subject) -> Verdict:
    """The recorded weights times the values give the output of the attention.

    The encoding's additions to the values, the style's ``post_heads`` and the output projection
    are applied as in the model.
    """
    return worst(*(_check_output(subject, role) for role in subject.roles))


def _check_rows(subject: Subject, role: str) -> Verdict:
    recorded, _ = _record(subject, role)
    weights = recorded["weights"]
    negative = largest(
        -weights, (*ROW, "key"), lambda at: f"{role}: {_row(at)} gives key {at['key']} a negative weight"
    )
    if not negative.number <= 0:
        return Verdict("violated", -negative.number, f"{role}: negative weight", counterexample=negative.description)
    if subject.attention(role).style.weights == "positive":
        return Verdict("holds", 0.0, f"{role}: negative weights")
    has_key = subject.mask(role).any(-1).unsqueeze(2).expand(weights.shape[:-1])
    deviation = ((weights.sum(-1) - 1) * has_key).abs()
    return within(
        largest(deviation, ROW, lambda at: f"{role}: the sum of the weights of {_row(at)} differs from one"),
        f"{role}: difference between row sums and one",
    )


def _row(at: dict[str, int]) -> str:
    return f"query {at['query']} in head {at['head']} of sentence {at['sentence']}"


@torch.no_grad()
def _check_output(subject: Subject, role: str) -> Verdict:
    recorded, output = _record(subject, role)
    attention, context = subject.attention(role), subject.attention_context(role, mask=subject.mask(role))
    weights, values = recorded["weights"], recorded["values"]
    group = weights.shape[2] // values.shape[2]
    heads = [weights[:, :, head] @ values[:, :, head // group] for head in range(weights.shape[2])]
    if attention.style.projects:
        products = torch.stack(heads, dim=2)
        added = subject.positional(role).values(
            weights, context.query_positions, context.key_positions, role, attention.context.layer or 0
        )
        processed = attention.style.post_heads(products if added is None else products + added)
        joined = torch.cat(list(processed.unbind(2)), dim=-1).flatten(1, 2)
        expected = attention.output(joined).view(output.shape)
    else:
        expected = torch.cat(heads, dim=-1)
    return within(
        largest(
            (output - expected).abs(),
            ("member", "sentence", "query", "coordinate"),
            lambda at: (
                f"{role}: the output of query {at['query']} of sentence {at['sentence']} differs from its "
                "weights times the values"
            ),
        ),
        f"{role}: difference between the output and weights times values",
    )


@torch.no_grad()
def _record(subject: Subject, role: str) -> tuple[dict[str, Tensor], Tensor]:
    """Return the recorded tensors of an attention, and its output on the path that training uses."""
    x, memory = subject.activations(role)
    context = subject.attention_context(role, mask=subject.mask(role))
    recorded: dict[str, Tensor] = {}
    attention = subject.attention(role)
    attention(x, memory, context, None, recorded.__setitem__)
    return recorded, attention(x, memory, context)


TOKENS, HEADS = 64, 8
"""Tokens per sentence, and the smallest number of heads over members and sentences."""

LOWEST, HIGHEST = 0.8, 1.25
"""Bounds of the standard deviation, measured on 64 by 64 pairs in every head."""


@invariant("temperature")
def scores_of_random_heads_have_variance_one(subject: Subject) -> Verdict:
    """Scores of unit-variance queries and keys have the standard deviation that the style declares."""
    return worst(*(_check_of_temperature(subject, role) for role in subject.roles))


@torch.no_grad()
def _check_of_temperature(subject: Subject, role: str) -> Verdict:
    style, geometry = subject.attention(role).style, subject.attention(role).context.geometry
    if style.temperature is None:
        return does_not_apply(f"{role}: the style declares that its scores have no fixed variance")
    if not (style.projects and geometry.key_width):
        return does_not_apply(f"{role}: scores do not depend on the content")
    # At initialisation, since trained parameters may change the standard deviation.
    initial = type(style)(style.options, style.context).double()
    generator = torch.Generator().manual_seed(29)
    members, heads = style.context.members, geometry.heads
    shape = (members, -(-HEADS // (members * heads)), heads, TOKENS, geometry.key_width)
    q, k = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    scores = _bilinear_scores(initial, q, k)
    if scores is None:
        return does_not_apply(f"{role}: scores are not products of queries and keys")
    ratio = float(scores.std()) / style.temperature
    quantity = f"{role}: standard deviation of the scores of random queries and keys"
    if LOWEST <= ratio <= HIGHEST:
        return Verdict("holds", ratio, quantity)
    return Verdict(
        "violated",
        ratio,
        f"expected {LOWEST} to {HIGHEST}: {quantity}",
        counterexample=f"{role}: scores of heads of width {geometry.key_width} have a standard deviation of "
        f"{ratio:.3g}; the geometry's scale is {geometry.scale:.3g}, key_width ** -0.5 is "
        f"{geometry.key_width**-0.5:.3g}",
    )


def _bilinear_scores(style: Attention, q: Tensor, k: Tensor) -> Tensor | None:
    """Return scores minus their value at zero content, None if they are not linear in q and k."""
    positions = torch.arange(TOKENS).unsqueeze(0)

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return style.scores(*style.transform(q, k), positions, positions)

    constant = scores(torch.zeros_like(q), torch.zeros_like(k))
    difference = scores(q, k) - constant
    for doubled in (scores(2 * q, k) - constant, scores(q, 2 * k) - constant):
        error = float((doubled - 2 * difference).abs().max())
        if not error <= EXACT * max(1.0, float(difference.abs().max())):
            return None
    return difference

"""The attention: both paths agree, weights belong to exactly the visible keys, and they give the output.

With the mask value ``-inf`` a fully masked row is zero and so is its output. With ``-1e9`` in place of
every score, the row is uniform, padding and future included. With 1e9 subtracted from every score
(``additive``), the row is the softmax of its unmasked scores.

The scale ``key_width ** -0.5`` gives scores of variance one (Vaswani et al. 2017, section 3.2.1). A style
whose scores are not scaled products (of unit vectors, of feature maps) declares its own standard
deviation as ``temperature``; a style without the scale, such as T5's, declares ``None``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.plugins.attention import Attention
from headtohead.testing.invariant import invariant, role_invariant
from headtohead.testing.subject import (
    KERNELS,
    MASK_VALUES,
    Subject,
    explicit_forward,
    force_kernel,
    forward,
    gradients,
    key_inputs,
    with_key_inputs,
    with_mask_value,
)
from headtohead.testing.verdict import EXACT, Verdict, beyond, does_not_apply, within, worst

ROW = ("member", "sentence", "head", "query")

ROUNDING = 1e-5
"""Accuracy of outputs and gradients after 1e9 was subtracted from float64 scores."""

TOKENS = 64
"""Tokens per sentence, for the variance of scores."""
HEADS = 8
"""Smallest number of heads over members and sentences, for the variance of scores."""

LOWEST = 0.8
"""Lower bound of the standard deviation, measured on 64 by 64 pairs in every head."""
HIGHEST = 1.25
"""Upper bound of the standard deviation."""

NO_SCORES = "the style masks its inputs and has no scores"


@invariant("parity")
def fused_path_equals_explicit_path(subject: Subject) -> Verdict:
    """Fused and explicit path agree at non-padding positions, forward and backward, for every mask value."""
    model = subject.model
    sentences = subject.sentences
    if "fused" not in model.paths.values():
        return does_not_apply("the variant trains on the explicit path")
    has_masked_keys = any(not subject.mask(role).all() for role in model.paths)
    nonpad = sentences.target_nonpad
    weights = subject.random_weights(17)
    differences = []
    for mask_value in MASK_VALUES if has_masked_keys else MASK_VALUES[:1]:
        with with_mask_value(model, mask_value):
            explicit = explicit_forward(model, sentences)
            expected = gradients(model, explicit, weights)
            for kernel in KERNELS:
                with force_kernel(kernel):
                    fused = forward(model, sentences)
                difference = (fused - explicit).detach()[nonpad]
                differences.append(float(difference.abs().max()))
                for name, gradient in gradients(model, fused, weights).items():
                    size = expected[name].abs().max().clamp(min=1.0)
                    largest = (gradient - expected[name]).abs().max()
                    differences.append(float(largest / size))
    return within(differences, "difference between fused and explicit path, outputs and gradients")


@role_invariant("mask-obeyed")
@torch.no_grad()
def queries_depend_on_exactly_the_visible_keys(subject: Subject, role: str) -> Verdict:
    """Changing a key changes the output of a query if and only if the mask shows the key to it."""
    attention = subject.attention(role)
    if not attention.style.projects:
        return does_not_apply("the style masks its inputs itself")
    if attention.is_self_attention:
        for hook in ("mix_tokens", "mix_projections"):
            if overrides(attention.style, Attention, hook):
                return does_not_apply("the style mixes tokens before attention")
    mask = subject.mask(role)
    change = _changes_by_key(subject, role, mask)
    visible = mask
    hidden = ~mask
    if attention.is_self_attention:
        # A changed token changes its own query, too.
        other_tokens = ~torch.eye(mask.shape[-1], dtype=torch.bool)
        visible = visible & other_tokens
        hidden = hidden & other_tokens
    # The output of a fully masked row can depend on hidden keys.
    hidden = hidden & mask.any(-1, keepdim=True)
    depends_on_position = (
        attention.style.position_dependent or "content_bias" in subject.positional(role).mechanisms
    )
    if attention.is_self_attention and depends_on_position:
        # A padding query may depend on the padding before it. Only padding does not attend to itself.
        hidden = hidden & mask.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    axes = ("member", "sentence", "query", "key")
    # Infinite if the mask shows every query only its own key.
    change_by_visible = change.where(visible, torch.inf)
    return worst(
        within(change * hidden, "change of an output by a hidden key", axes),
        beyond(change_by_visible, "smallest change of an output by a visible key", axes, EXACT),
    )


def _changes_by_key(subject: Subject, role: str, mask: Tensor) -> Tensor:
    """Change one key after another, and return the largest change of outputs, ``[member, sentence, query, key]``."""
    attention = subject.attention(role)
    x, memory = subject.activations(role)
    context = subject.attention_context(role, mask=mask)
    before, _ = attention(x, memory, context)
    changes = []
    for position in range(mask.shape[-1]):
        keys = key_inputs(x, memory).clone()
        keys[:, :, position] = keys[:, :, position].flip(-1) + 0.5
        after, _ = attention(*with_key_inputs(x, memory, keys), context)
        changes.append((after - before).abs().amax(-1))
    return torch.stack(changes, dim=-1)


@role_invariant("temperature", scope="entry")
@torch.no_grad()
def scores_of_random_heads_have_variance_one(subject: Subject, role: str) -> Verdict:
    """Scores of unit-variance queries and keys have the standard deviation that the style declares.

    It does not apply to scores that are not bilinear in queries and keys.
    """
    style = subject.attention(role).style
    geometry = style.context.geometry
    if style.temperature is None:
        return does_not_apply("the style declares that its scores have no fixed variance")
    if not (style.projects and geometry.key_width):
        return does_not_apply("scores do not depend on the content")
    # At initialisation, since trained parameters may change the standard deviation.
    initial = type(style)(style.options, style.context).double()
    members = style.context.members
    sentences = math.ceil(HEADS / (members * geometry.heads))
    shape = (members, sentences, geometry.heads, TOKENS, geometry.key_width)
    generator = torch.Generator().manual_seed(29)
    q = torch.randn(shape, generator=generator, dtype=torch.float64)
    k = torch.randn(shape, generator=generator, dtype=torch.float64)
    positions = torch.arange(TOKENS).unsqueeze(0)

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return initial.scores(*initial.transform(q, k), positions, positions)

    constant = scores(torch.zeros_like(q), torch.zeros_like(k))
    products = scores(q, k) - constant
    tolerance = EXACT * max(1.0, float(products.abs().max()))
    for doubled_scores in (scores(2 * q, k), scores(q, 2 * k)):
        error = float((doubled_scores - constant - 2 * products).abs().max())
        if not error <= tolerance:  # NaN, too
            return does_not_apply("scores are not products of queries and keys")
    deviation = float(products.std())
    ratio = deviation / style.temperature
    quantity = "standard deviation of the scores of random heads, divided by the declared one"
    if LOWEST <= ratio <= HIGHEST:
        return Verdict("holds", ratio, quantity)
    example = (
        f"scores of heads of width {geometry.key_width} have a standard deviation of {deviation:.3g}, declared "
        f"{style.temperature:g}; the geometry's scale is {geometry.scale:.3g}, key_width ** -0.5 is "
        f"{geometry.key_width**-0.5:.3g}"
    )
    reason = f"expected {LOWEST} to {HIGHEST}: {quantity}"
    return Verdict("violated", ratio, reason, counterexample=example)


@role_invariant("masked-rows")
def fully_masked_rows_are_predictable(subject: Subject, role: str) -> Verdict:
    """Fully masked rows give zero under -inf and a uniform row under -1e9, on every path.

    Where the style normalises or mixes by itself, only the zero row under -inf is predicted.
    """
    style = subject.attention(role).style
    if not style.projects:
        return does_not_apply(NO_SCORES)
    by_style = overrides(style, Attention, "normalise") or overrides(style, Attention, "mix")
    verdicts = []
    for mask_value in MASK_VALUES[:1] if by_style else MASK_VALUES:
        with with_mask_value(subject.model, mask_value):
            verdicts.append(_check_masked_rows(subject, role, mask_value))
    return worst(*verdicts)


def _check_masked_rows(subject: Subject, role: str, mask_value: str) -> Verdict:
    attention = subject.attention(role)
    mask = _random_mask(subject, role)
    context = subject.attention_context(role, mask=mask)
    x, memory = subject.activations(role)
    inputs = [tensor.requires_grad_() for tensor in (x, memory) if tensor is not None]
    recorded: dict[str, Tensor] = {}
    explicit, _ = attention(x, memory, context, None, recorded.__setitem__)
    weights = recorded["weights"]
    if mask_value == "-inf":
        predicted = torch.zeros_like(weights)
    elif mask_value == "-1e9":
        predicted = torch.full_like(weights, 1 / mask.shape[-1])
    else:
        predicted = recorded["scores"].softmax(-1)
    rows = (~mask.any(-1)).unsqueeze(2).expand(weights.shape[:-1])

    def input_gradients(output: Tensor) -> tuple[Tensor, ...]:
        total = output.square().sum()
        return torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)

    differences = [(weights - predicted)[rows].detach()]
    expected = input_gradients(explicit)
    for kernel in KERNELS:
        with force_kernel(kernel):
            fused, _ = attention(x, memory, context)
        differences.append((fused - explicit).detach())
        for gradient, reference in zip(input_gradients(fused), expected, strict=True):
            differences.append(gradient - reference)
    largest = [float(difference.abs().max()) for difference in differences]
    quantity = f"mask value {mask_value}: difference of masked rows from prediction"
    return within(largest, quantity, bound=ROUNDING if mask_value == "additive" else EXACT)


@role_invariant("masked-keys")
def a_masked_key_has_no_weight(subject: Subject, role: str) -> Verdict:
    """Under -inf, the weight of a masked key is exactly zero, also under a random mask."""
    if not subject.attention(role).style.projects:
        return does_not_apply(NO_SCORES)
    mask = _random_mask(subject, role)
    with with_mask_value(subject.model, "-inf"):
        weights = _record(subject, role, mask)["weights"].abs()
    of_masked = weights * ~mask.unsqueeze(2)
    return within(of_masked, "largest weight of a masked key", (*ROW, "key"), 0.0)


def _random_mask(subject: Subject, role: str) -> Tensor:
    """Return a random mask ``[member, batch, query, key]``; row 0 has no visible key."""
    queries, keys = subject.times(role)
    generator = torch.Generator().manual_seed(19)
    shape = (*subject.sentences.source_lengths.shape, queries, keys)
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[:, :, 0] = False
    mask[:, :, 1:2, 0] = True
    return mask


@role_invariant("rows-sum-to-one")
def rows_of_weights_sum_to_one(subject: Subject, role: str) -> Verdict:
    """Every row of weights with a visible key sums to one and is not negative, as the style declares."""
    kind = subject.attention(role).style.weights
    if kind == "signed":
        return does_not_apply('the style declares its weights "signed"')
    weights = _record(subject, role, subject.mask(role))["weights"]
    not_negative = beyond(weights, "smallest weight", (*ROW, "key"), 0.0)
    if kind == "positive" or not_negative.state == "violated":
        return not_negative
    has_key = subject.mask(role).any(-1).unsqueeze(2).expand(weights.shape[:-1])
    deviation = ((weights.sum(-1) - 1) * has_key).abs()
    return within(deviation, "difference between row sums and one", ROW)


@role_invariant("weights-times-values")
@torch.no_grad()
def weights_times_values_are_the_output(subject: Subject, role: str) -> Verdict:
    """The recorded weights times the values give the output of the attention.

    The encoding's additions to the values, the style's ``post_heads`` and the output projection
    are applied as in the model.
    """
    attention = subject.attention(role)
    style = attention.style
    mask = subject.mask(role)
    recorded = _record(subject, role, mask)
    context = subject.attention_context(role, mask=mask)
    x, memory = subject.activations(role)
    output, _ = attention(x, memory, context)
    weights = recorded["weights"]
    values = recorded["values"]
    # Heads of a group share their values.
    heads = weights.shape[2]
    values = values.repeat_interleave(heads // values.shape[2], dim=2)
    products = [weights[:, :, head] @ values[:, :, head] for head in range(heads)]
    outputs = torch.stack(products, dim=2)
    if style.projects:
        layer = attention.context.layer or 0
        positions = (context.query_positions, context.key_positions)
        added = subject.positional(role).values(weights, *positions, role, layer)
        if added is not None:
            outputs = outputs + added
        if attention.is_self_attention:
            x = style.mix_tokens(x)
        outputs = style.post_heads(outputs, x, values)
    joined = torch.cat(list(outputs.unbind(2)), dim=-1)
    expected = joined
    if style.projects:
        expected = attention.output(joined.flatten(1, 2)).view(output.shape)
    axes = ("member", "sentence", "query", "coordinate")
    quantity = "difference between the output and weights times values"
    return within((output - expected).abs(), quantity, axes)


@torch.no_grad()
def _record(subject: Subject, role: str, mask: Tensor) -> dict[str, Tensor]:
    """Return the tensors that an attention records on the explicit path."""
    recorded: dict[str, Tensor] = {}
    context = subject.attention_context(role, mask=mask)
    subject.attention(role)(*subject.activations(role), context, None, recorded.__setitem__)
    return recorded

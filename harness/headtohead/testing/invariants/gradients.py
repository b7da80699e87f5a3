"""Every parameter has a gradient, except where the mathematics makes it zero.

A key bias adds the same number to every score of a query, and a softmax is invariant to that: under
plain softmax, without rotation of keys, its gradient is exactly zero. Embeddings of tokens that did
not occur, and table rows of positions that did not occur, have no gradient either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from headtohead.errors import HeadToHeadError
from headtohead.model.attention import MultiHeadAttention, overrides
from headtohead.model.blocks import DecoderLayer
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead.schema.run_config import changed
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject, forward, gradients
from headtohead.testing.verdict import Verdict, beyond, within, worst

SMALLEST = 1e-8
"""Smallest absolute value that counts as a gradient."""


@invariant("gradients")
def gradient_reaches_every_parameter(subject: Subject) -> Verdict:
    """Every parameter of every member has a gradient, except key biases under plain softmax.

    The projections of queries, keys and values are checked separately, and so are the layers and
    heads of an entry's own parameters.
    """
    model = subject.model
    logits = forward(model, subject.sentences)
    by_name = gradients(model, logits, subject.random_weights(23))
    without_gradient = _query_norms_without_queries(model)
    resized = {}
    if any(_belongs_to_entry(name) for name in by_name):
        resized = _resized_shapes(subject)
    verdicts = []
    for name, gradient in by_name.items():
        if name in without_gradient:
            continue
        for part, piece, must_be_zero in _parts(model, name, gradient, resized):
            if not piece.numel():
                continue
            if must_be_zero:
                largest = float(piece.abs().max())
                quantity = f"{name}: gradient of a key bias"
                verdicts.append(within(largest, quantity, bound=SMALLEST))
            else:
                per_member = piece.reshape(len(piece), -1).abs().amax(-1)
                quantity = f"{name}{part}: smallest gradient of a member"
                verdicts.append(beyond(float(per_member.min()), quantity, bound=SMALLEST))
    smallest = _smallest_of_embeddings(subject, by_name)
    quantity = "smallest gradient of the embedding of a token that occurred"
    verdicts.append(beyond(smallest, quantity, bound=SMALLEST))
    # A parameter without a gradient never trains, so that scores are wrong.
    return replace(worst(*verdicts), is_undeclared=False)


def _smallest_of_embeddings(subject: Subject, by_name: dict[str, Tensor]) -> float:
    """Return the smallest gradient of the embedding of a token that occurred in a member."""
    sentences = subject.sentences
    table = "source_embedding.weight" if "encoder" in subject.roles else "target_embedding.weight"
    sides = [("target_embedding.weight", sentences.target, sentences.target_nonpad)]
    if table in by_name:
        sides.append((table, sentences.source, sentences.source_nonpad))
    smallest = torch.inf
    for name, ids, nonpad in sides:
        for member in range(len(ids)):
            tokens = ids[member][nonpad[member]]
            sizes = by_name[name][member][tokens].abs().amax(-1)
            smallest = min(float(sizes.min()), smallest)
    return smallest


def _resized_shapes(subject: Subject) -> dict[str, torch.Size]:
    """Return the parameter shapes of the variant with more layers and, if allowed, half the heads of the same width."""
    sizes = subject.config.model
    more_layers = {
        "encoder_layers": _more(sizes.encoder_layers),
        "decoder_layers": _more(sizes.decoder_layers),
    }
    fewer_heads = {"heads": sizes.heads // 2, "d_model": sizes.d_model // 2}
    if sizes.heads % 2 == 0 and sizes.d_model % 2 == 0:
        shapes = _shapes(subject, more_layers | fewer_heads)
        if shapes:
            return shapes
    return _shapes(subject, more_layers)


def _more(layers: int) -> int:
    """Return a larger number of layers, but not twice as many.

    With twice as many layers and half the heads, an axis of all heads of all layers would keep its size.
    """
    if layers == 1:
        return 3
    return layers + 1


def _belongs_to_entry(name: str) -> bool:
    """Return whether a parameter was created by a positional encoding or an attention style."""
    return name.startswith("positionals.") or ".style." in name


def _query_norms_without_queries(model: Transformer) -> frozenset[str]:
    """Return the pre-norm parameters of cross-attentions that have no queries."""
    if "cross" not in model.roles:
        return frozenset()
    names: set[str] = set()
    for layer, block in enumerate(model.decoder):
        assert isinstance(block, DecoderLayer)
        has_queries = block.cross.context.geometry.key_width or not block.cross.style.projects
        if has_queries or block.cross.is_self_attention or not block.cross_branch.is_pre_norm:
            continue
        prefix = f"decoder.{layer}.cross_branch.norm."
        names |= {name for name, _ in model.named_parameters() if name.startswith(prefix)}
    return frozenset(names)


def _parts(
    model: Transformer, name: str, gradient: Tensor, resized: dict[str, torch.Size]
) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield the label and gradient of each part of a parameter, and whether it must be zero.

    A parameter of an entry has a part for each index of the axes whose sizes differ in the resized model: its layers
    and heads.
    """
    owner, _, last = name.rpartition(".")
    above, _, projection = owner.rpartition(".")
    if projection in ("queries_keys_values", "keys_values", "queries"):
        attention = model.get_submodule(above)
        assert isinstance(attention, MultiHeadAttention)
        yield from _projections(attention, projection, last, gradient)
        return
    yield "", gradient, False
    if not _belongs_to_entry(name):
        return
    shape = resized.get(name, gradient.shape)
    if len(shape) != gradient.dim():
        return
    for axis in range(1, gradient.dim()):
        if shape[axis] == gradient.shape[axis]:
            continue
        before = ", ".join([".."] * axis)
        for index, piece in enumerate(gradient.unbind(axis)):
            yield f"[{before}, {index}]", piece, False


def _projections(
    attention: MultiHeadAttention, projection: str, last: str, gradient: Tensor
) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield name and gradient of the parts of a joint projection, and whether the part must have no gradient."""
    geometry = attention.context.geometry
    widths = {
        "queries": geometry.heads * geometry.key_width,
        "keys": geometry.kv_heads * geometry.key_width,
        "values": geometry.value_heads * geometry.value_width,
    }
    names = projection.split("_")
    # With other scores or another normaliser, a key bias may have a gradient or not.
    hooks = ("mix_projections", "transform", "scores", "mix_scores", "normalise", "mix")
    has_hooks = any(overrides(attention.style, Attention, hook) for hook in hooks)
    is_plain = not has_hooks and not overrides(attention.positional, Positional, "rotate")
    pieces = gradient.split([widths[name] for name in names], -1)
    for name, piece in zip(names, pieces, strict=True):
        is_key_bias = name == "keys" and last == "bias"
        if is_plain or not is_key_bias:
            yield f", {name}", piece, is_key_bias


def _shapes(subject: Subject, change: dict[str, int]) -> dict[str, torch.Size]:
    """Return the parameter shapes of a resized model, or none if the variant does not allow the sizes."""
    try:
        config = changed(subject.config, model=change)
        model = Transformer(config, subject.seeds[:1], *subject.vocab_sizes)
    except HeadToHeadError:
        return {}
    return {name: parameter.shape for name, parameter in model.named_parameters()}

"""Every parameter has a gradient, except where the mathematics makes it zero.

A key bias adds the same number to every score of a query, and a softmax is invariant to that: under
plain softmax, without rotation of keys, its gradient is exactly zero. Embeddings of tokens that did
not occur, and table rows of positions that did not occur, have no gradient either.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headtohead.errors import HeadToHeadError
from headtohead.model.attention import MultiHeadAttention, overrides
from headtohead.model.blocks import DecoderLayer
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import gradients
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import Verdict, beyond, within, worst

SMALLEST = 1e-8
"""Smallest absolute value that counts as a gradient."""


@invariant("gradients")
def gradient_reaches_every_parameter(subject: Subject) -> Verdict:
    """Every parameter of every member has a gradient, except key biases under plain softmax.

    The projections of queries, keys and values are checked separately, and so are the layers and
    heads of an entry's own parameters.
    """
    model, nonpad = subject.model, subject.sentences.target_nonpad
    logits = forward(model, subject.sentences)
    generator = torch.Generator().manual_seed(23)
    weights = torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    by_name = gradients(model, logits, weights * nonpad.unsqueeze(-1))
    without_gradient = _query_norms_without_queries(subject)
    verdicts = [
        verdict
        for name, gradient in by_name.items()
        if name not in without_gradient
        for verdict in _check_parameter(subject, name, gradient)
    ]
    return worst(*verdicts, _check_embeddings(subject, by_name))


def _query_norms_without_queries(subject: Subject) -> frozenset[str]:
    """Return the pre-norm parameters of cross-attentions that have no queries."""
    names = set()
    for layer, block in enumerate(subject.model.decoder):
        assert isinstance(block, DecoderLayer)
        has_queries = block.cross.context.geometry.key_width or not block.cross.style.projects
        if not has_queries and not block.cross.self_attention and block.cross_branch.pre:
            names |= {f"decoder.{layer}.cross_branch.norm.{parameter}" for parameter in ("weight", "bias")}
    return frozenset(names)


def _check_parameter(subject: Subject, name: str, gradient: Tensor) -> Iterator[Verdict]:
    """Yield a verdict on every part of a parameter."""
    for part, piece, must_be_zero in _parts(subject, name, gradient):
        if not piece.numel():
            continue
        if must_be_zero:
            yield within(float(piece.abs().max()), f"{name}: gradient of a key bias", SMALLEST)
        else:
            per_member = piece.reshape(len(piece), -1).abs().amax(-1)
            yield beyond(float(per_member.min()), f"{name}{part}: smallest gradient of a member", SMALLEST)


def _parts(subject: Subject, name: str, gradient: Tensor) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield the label and gradient of each part of a parameter, and whether it must be zero."""
    owner, _, last = name.rpartition(".")
    above, _, projection = owner.rpartition(".")
    if projection in ("queries_keys_values", "keys_values", "queries"):
        attention = subject.model.get_submodule(above)
        assert isinstance(attention, MultiHeadAttention)
        yield from _projections(attention, projection, last, gradient)
        return
    yield "", gradient, False
    for axis in _layer_and_head_axes(subject, name):
        for index, piece in enumerate(gradient.unbind(axis)):
            yield f"[{', '.join(['..'] * axis)}, {index}]", piece, False


def _projections(
    attention: MultiHeadAttention, projection: str, last: str, gradient: Tensor
) -> Iterator[tuple[str, Tensor, bool]]:
    geometry = attention.context.geometry
    widths = {
        "queries": geometry.heads * geometry.key_width,
        "keys": geometry.kv_heads * geometry.key_width,
        "values": geometry.value_heads * geometry.value_width,
    }
    names = projection.split("_")
    # With other scores or another normaliser, a key bias may have a gradient or not.
    style = attention.style
    hooks = ("transform", "scores", "mix_scores", "normalise", "mix")
    plain = not any(overrides(style, Attention, hook) for hook in hooks)
    plain = plain and not overrides(attention.positional, Positional, "rotate")
    for name, piece in zip(names, gradient.split([widths[name] for name in names], -1), strict=True):
        if name == "keys" and last == "bias":
            if plain:
                yield f", {name}", piece, True
            continue
        yield f", {name}", piece, False


def _layer_and_head_axes(subject: Subject, name: str) -> list[int]:
    """Return the axes of an entry's parameter that count layers or heads.

    Their sizes change with the number of layers or heads of the model.
    """
    if not (name.startswith("positionals.") or ".style." in name):
        return []
    original = subject.model.get_parameter(name).shape
    axes = set()
    for shapes in _resized_shapes(subject):
        shape = shapes.get(name, original)
        if len(shape) == len(original):
            axes |= {axis for axis in range(1, len(original)) if shape[axis] != original[axis]}
    return sorted(axes)


def _resized_shapes(subject: Subject) -> list[dict[str, torch.Size]]:
    """Return the parameter shapes with one more layer, and with half the heads of the same width.

    Cached on the subject.
    """
    if "shapes" not in subject.__dict__:
        model = subject.config.model
        layers = model.encoder_layers, model.decoder_layers
        more = {"encoder_layers": layers[0] + 1, "decoder_layers": layers[1] + 1}
        fewer = {"heads": model.heads // 2, "d_model": model.d_model // 2}
        changes = [more] + ([fewer] if model.heads % 2 == 0 and model.d_model % 2 == 0 else [])
        subject.__dict__["shapes"] = [_shapes(subject, change) for change in changes]
    shapes: list[dict[str, torch.Size]] = subject.__dict__["shapes"]
    return shapes


def _shapes(subject: Subject, change: dict[str, int]) -> dict[str, torch.Size]:
    config = subject.config
    resized = config.model_copy(update={"model": config.model.model_copy(update=change)})
    try:
        model = Transformer(resized, None, *subject.vocab_sizes)
    except HeadToHeadError:
        return {}
    return {name: parameter.shape for name, parameter in model.named_parameters()}


def _check_embeddings(subject: Subject, by_name: dict[str, Tensor]) -> Verdict:
    """Check that the embedding of every token that occurred has a gradient in its member."""
    sentences = subject.sentences
    sides = [("target_embedding.weight", sentences.target, sentences.target_nonpad)]
    if "source_embedding.weight" in by_name:
        sides.append(("source_embedding.weight", sentences.source, sentences.source_nonpad))
    smallest = torch.inf
    for name, ids, nonpad in sides:
        for member in range(len(ids)):
            rows = by_name[name][member][ids[member][nonpad[member]]]
            smallest = min(smallest, float(rows.abs().amax(-1).min()))
    return beyond(smallest, "smallest gradient of the embedding of a token that occurred", SMALLEST)

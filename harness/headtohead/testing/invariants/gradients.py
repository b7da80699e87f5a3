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
    model, sentences = subject.model, subject.sentences
    by_name = gradients(model, forward(model, sentences), subject.random_weights(23))
    without_gradient = _query_norms_without_queries(model)
    has_own = any(map(_belongs_to_entry, by_name))
    sizes = subject.config.model
    changes = [
        {"encoder_layers": sizes.encoder_layers + 1, "decoder_layers": sizes.decoder_layers + 1}
    ]
    if sizes.heads % 2 == 0 and sizes.d_model % 2 == 0:  # half the heads, of the same width
        changes.append({"heads": sizes.heads // 2, "d_model": sizes.d_model // 2})
    shapes = [_shapes(subject, change) for change in changes] if has_own else []
    verdicts = []
    for name, gradient in by_name.items():
        for part, piece, must_be_zero in _parts(model, name, gradient, shapes):
            if name in without_gradient or not piece.numel():
                continue
            if must_be_zero:
                verdicts.append(
                    within(
                        float(piece.abs().max()), f"{name}: gradient of a key bias", bound=SMALLEST
                    )
                )
            else:
                per_member = piece.reshape(len(piece), -1).abs().amax(-1)
                verdicts.append(
                    beyond(
                        float(per_member.min()),
                        f"{name}{part}: smallest gradient of a member",
                        bound=SMALLEST,
                    )
                )
    # The embedding of every token that occurred, in its member.
    sides = [("target_embedding.weight", sentences.target, sentences.target_nonpad)]
    if (
        table := "source_embedding.weight"
        if "encoder" in subject.roles
        else "target_embedding.weight"
    ) in by_name:
        sides.append((table, sentences.source, sentences.source_nonpad))
    smallest = min(
        float(by_name[name][member][ids[member][nonpad[member]]].abs().amax(-1).min())
        for name, ids, nonpad in sides
        for member in range(len(ids))
    )
    embeddings = beyond(
        smallest,
        "smallest gradient of the embedding of a token that occurred",
        bound=SMALLEST,
    )
    # A parameter without a gradient never trains, so that scores are wrong.
    return replace(worst(*verdicts, embeddings), is_undeclared=False)


def _belongs_to_entry(name: str) -> bool:
    """Return whether a parameter was created by a positional encoding or an attention style."""
    return name.startswith("positionals.") or ".style." in name


def _query_norms_without_queries(model: Transformer) -> frozenset[str]:
    """Return the pre-norm parameters of cross-attentions that have no queries."""
    names = set()
    for layer, block in enumerate(model.decoder if "cross" in model.roles else ()):
        assert isinstance(block, DecoderLayer)
        has_queries = block.cross.context.geometry.key_width or not block.cross.style.projects
        if not has_queries and not block.cross.self_attention and block.cross_branch.pre:
            prefix = f"decoder.{layer}.cross_branch.norm."
            names |= {name for name, _ in model.named_parameters() if name.startswith(prefix)}
    return frozenset(names)


def _parts(
    model: Transformer, name: str, gradient: Tensor, resized: list[dict[str, torch.Size]]
) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield the label and gradient of each part of a parameter, and whether it must be zero.

    The parts of an entry's parameter are its layers and heads: the axes whose sizes differ in resized models.
    """
    owner, _, last = name.rpartition(".")
    above, _, projection = owner.rpartition(".")
    if projection in ("queries_keys_values", "keys_values", "queries"):
        attention = model.get_submodule(above)
        assert isinstance(attention, MultiHeadAttention)
        yield from _projections(attention, projection, last, gradient)
        return
    yield "", gradient, False
    if _belongs_to_entry(name):
        axes = {
            axis
            for shape in (shapes.get(name, gradient.shape) for shapes in resized)
            for axis in range(1, gradient.dim())
            if len(shape) == gradient.dim() and shape[axis] != gradient.shape[axis]
        }
        for axis in sorted(axes):
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
    hooks = ("transform", "scores", "mix_scores", "normalise", "mix")
    plain = not any(overrides(attention.style, Attention, hook) for hook in hooks)
    plain = plain and not overrides(attention.positional, Positional, "rotate")
    for name, piece in zip(
        names, gradient.split([widths[name] for name in names], -1), strict=True
    ):
        is_key_bias = name == "keys" and last == "bias"
        if plain or not is_key_bias:
            yield f", {name}", piece, is_key_bias


def _shapes(subject: Subject, change: dict[str, int]) -> dict[str, torch.Size]:
    """Return the parameter shapes of a resized model, or none if the variant does not allow the sizes."""
    try:
        model = Transformer(
            changed(subject.config, model=change), subject.seeds[:1], *subject.vocab_sizes
        )
    except HeadToHeadError:
        return {}
    return {name: parameter.shape for name, parameter in model.named_parameters()}

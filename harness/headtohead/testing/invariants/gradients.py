"""Every weight can learn, but for those that provably cannot.

A key bias adds the same number to every score of a query, which a softmax does not see: under plain
softmax, without rotation of keys, its gradient is exactly zero. Words that did not occur, and table
rows of positions that did not occur, have none either.
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

REACHED = 1e-8


@invariant("gradients")
def gradient_reaches_every_parameter(subject: Subject) -> Verdict:
    """Every parameter of every member gets a gradient, key biases under plain softmax none.

    Queries, keys and values are asked apart, and so are the layers and heads of an entry's own.
    """
    model, live = subject.model, subject.sentences.live_target
    logits = forward(model, subject.sentences)
    generator = torch.Generator().manual_seed(23)
    towards = torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    found = gradients(model, logits, towards * live.unsqueeze(-1))
    unasked = _unasked(subject)
    verdicts = [
        verdict
        for name, gradient in found.items()
        if name not in unasked
        for verdict in _tensor(subject, name, gradient)
    ]
    return worst(*verdicts, _words(subject, found))


def _unasked(subject: Subject) -> frozenset[str]:
    """Return weights that only queries pass through, in second attentions that have none."""
    names = set()
    for layer, block in enumerate(subject.model.decoder):
        assert isinstance(block, DecoderLayer)
        has_queries = block.cross.context.geometry.key_width or not block.cross.style.projects
        if not has_queries and not block.cross.self_attention and block.cross_branch.pre:
            names |= {f"decoder.{layer}.cross_branch.norm.{one}" for one in ("weight", "bias")}
    return frozenset(names)


def _tensor(subject: Subject, name: str, gradient: Tensor) -> Iterator[Verdict]:
    """Check one parameter, part by part."""
    for part, piece, silent in _parts(subject, name, gradient):
        if not piece.numel():
            continue
        what = f"{name}{part}: gradient of the member that has least"
        if silent:
            most = float(piece.abs().max())
            told = f"{name}: gradient of a key bias"
            yield within(most, told, REACHED, shown=f"{told} is {most:.3g}")
            continue
        least = float(piece.reshape(len(piece), -1).abs().amax(-1).min())
        yield beyond(least, what, REACHED, shown=f"{what} is {least:.3g}")


def _parts(subject: Subject, name: str, gradient: Tensor) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield the parts of a parameter that are asked apart, and whether each must be silent."""
    owner, _, last = name.rpartition(".")
    above, _, projection = owner.rpartition(".")
    if projection in ("queries_keys_values", "keys_values", "queries"):
        attention = subject.model.get_submodule(above)
        assert isinstance(attention, MultiHeadAttention)
        yield from _projections(attention, projection, last, gradient)
        return
    yield "", gradient, False
    for axis in _own_axes(subject, name):
        for place, piece in enumerate(gradient.unbind(axis)):
            yield f"[{', '.join(['..'] * axis)}, {place}]", piece, False


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
    # Another score or normaliser may hear a key bias or not.
    style = attention.style
    own = ("transform", "scores", "mix_scores", "normalise", "mix")
    plain = not any(overrides(style, Attention, one) for one in own)
    plain = plain and not overrides(attention.positional, Positional, "rotate")
    for name, piece in zip(names, gradient.split([widths[one] for one in names], -1), strict=True):
        if name == "keys" and last == "bias":
            if plain:
                yield f", {name}", piece, True
            continue
        yield f", {name}", piece, False


def _own_axes(subject: Subject, name: str) -> list[int]:
    """Return the axes of an entry's parameter that count layers or heads.

    They are those that change with these numbers, as a model of shapes alone tells.
    """
    if not (name.startswith("positionals.") or ".style." in name):
        return []
    own = subject.model.get_parameter(name).shape
    found = set()
    for other in _other_shapes(subject):
        shape = other.get(name, own)
        if len(shape) == len(own):
            found |= {axis for axis in range(1, len(own)) if shape[axis] != own[axis]}
    return sorted(found)


def _other_shapes(subject: Subject) -> list[dict[str, torch.Size]]:
    """Return shapes of parameters with one layer more, and with half the heads at their width."""
    if "shapes" not in subject.__dict__:
        model = subject.config.model
        layers = model.encoder_layers, model.decoder_layers
        more = {"encoder_layers": layers[0] + 1, "decoder_layers": layers[1] + 1}
        fewer = {"heads": model.heads // 2, "d_model": model.d_model // 2}
        changed = [more] + ([fewer] if model.heads % 2 == 0 and model.d_model % 2 == 0 else [])
        subject.__dict__["shapes"] = [_shapes(subject, one) for one in changed]
    shapes: list[dict[str, torch.Size]] = subject.__dict__["shapes"]
    return shapes


def _shapes(subject: Subject, changed: dict[str, int]) -> dict[str, torch.Size]:
    config = subject.config
    resized = config.model_copy(update={"model": config.model.model_copy(update=changed)})
    try:
        model = Transformer(resized, None, *subject.words)
    except HeadToHeadError:
        return {}
    return {name: one.shape for name, one in model.named_parameters()}


def _words(subject: Subject, found: dict[str, Tensor]) -> Verdict:
    """Every word that occurred has a gradient in its member's table."""
    sentences = subject.sentences
    sides = [("target_embedding.weight", sentences.target, sentences.live_target)]
    if "source_embedding.weight" in found:
        sides.append(("source_embedding.weight", sentences.source, sentences.live_source))
    least = torch.inf
    for name, ids, live in sides:
        for member in range(len(ids)):
            rows = found[name][member][ids[member][live[member]]]
            least = min(least, float(rows.abs().amax(-1).min()))
    what = "least gradient of a word that occurred"
    return beyond(least, what, REACHED, shown=f"{what} is {least:.3g}")

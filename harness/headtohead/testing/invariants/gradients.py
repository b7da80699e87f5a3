"""Every weight can learn, but for those that provably cannot.

A key bias adds the same number to every score of a query, which a softmax does not see: under plain
softmax, without rotation of keys, its gradient is exactly zero. Words that did not occur, and table
rows of positions that did not occur, have none either.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.families.attention import Attention
from headtohead.families.positional import Positional
from headtohead.model.attention import MultiHeadAttention, overrides
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import gradients
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import Verdict, beyond, within, worst

REACHED = 1e-9


@invariant("gradients")
def gradient_reaches_every_parameter(subject: Subject) -> Verdict:
    """Every parameter of every member gets a gradient, key biases under plain softmax none."""
    model, live = subject.model, subject.sentences.live_target
    logits = forward(model, subject.sentences)
    generator = torch.Generator().manual_seed(23)
    towards = torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    found = gradients(model, logits, towards * live.unsqueeze(-1))
    verdicts = [
        _tensor(name, gradient, *_split_key_bias(subject, name)) for name, gradient in found.items()
    ]
    return worst(*verdicts, _words(subject, found))


def _tensor(name: str, gradient: Tensor, keys: slice, silent: bool) -> Verdict:
    """Check one parameter, its part ``keys`` apart if that must be silent."""
    if silent and keys.start != keys.stop:
        most = float(gradient[..., keys].abs().max())
        if most > REACHED:
            return within(most, f"{name}: gradient of a key bias", REACHED)
        rest = torch.cat([gradient[..., : keys.start], gradient[..., keys.stop :]], dim=-1)
        return beyond(_least(rest), f"{name}: gradient of the member that has least", REACHED)
    return beyond(_least(gradient), f"{name}: gradient of the member that has least", REACHED)


def _least(gradient: Tensor) -> float:
    return float(gradient.flatten(1).abs().amax(-1).min())


def _split_key_bias(subject: Subject, name: str) -> tuple[slice, bool]:
    """Return where a parameter holds key biases, and whether these get no gradient."""
    owner, _, last = name.rpartition(".")
    above, _, projection = owner.rpartition(".")
    part = subject.model.get_submodule(above)
    if last != "bias" or not isinstance(part, MultiHeadAttention) or projection == "output":
        return slice(0, 0), False
    geometry = part.context.geometry
    q, k = geometry.heads * geometry.key_width, geometry.kv_heads * geometry.key_width
    start = {"queries_keys_values": q, "keys_values": 0}.get(projection)
    hears_keys = (
        overrides(part.style, Attention, "transform")
        or overrides(part.style, Attention, "normalise")
        or overrides(part.positional, Positional, "rotate")
    )
    return (slice(0, 0), False) if start is None else (slice(start, start + k), not hears_keys)


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
    return beyond(least, "least gradient of a word that occurred", REACHED)

"""The path that trains and the path that shows its weights compute the same function.

Both directions count: the output on live rows, and the gradient of every parameter. Fully masked
rows are left to ``masked_rows``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.testing.invariant import invariant
from headtohead.testing.kernels import KERNELS, forced
from headtohead.testing.subject import Subject, explicit_forward, filled, forward
from headtohead.testing.verdict import Verdict, does_not_apply, within

FILLS = ("-inf", "-1e9", "additive")


@invariant("parity")
def fused_path_equals_explicit_path(subject: Subject) -> Verdict:
    """Fused and explicit path agree on live rows, forward and backward, for every fill."""
    paths = subject.model.paths
    if "fused" not in paths.values():
        return does_not_apply("the variant trains on the explicit path")
    masked = any(not subject.mask(role).all() for role in paths)
    differences = [
        difference for fill in (FILLS if masked else FILLS[:1]) for difference in _differences(subject, fill)
    ]
    return within(float(torch.stack(differences).max()), "difference of fused and explicit path, outputs and gradients")


def _differences(subject: Subject, fill: str) -> list[Tensor]:
    """Return how far each kernel is from the explicit path, forward and backward."""
    model, sentences = subject.model, subject.sentences
    live = sentences.live_target
    generator = torch.Generator().manual_seed(17)
    towards = torch.randn(subject.plain.shape, generator=generator, dtype=torch.float64)
    towards = towards * live.unsqueeze(-1)
    with filled(model, fill):
        explicit = explicit_forward(model, sentences)
        wanted = gradients(model, explicit, towards)
        found = []
        for kernel in KERNELS:
            with forced(kernel):
                fused = forward(model, sentences)
            found.append((fused - explicit).detach()[live].abs().max())
            found.append(_apart(gradients(model, fused, towards), wanted))
    return found


def gradients(model: Transformer, logits: Tensor, towards: Tensor) -> dict[str, Tensor]:
    """Return the gradient of ``(logits · towards).sum()`` for every parameter; none is zero."""
    named = dict(model.named_parameters())
    found = torch.autograd.grad(
        (logits * towards).sum(), list(named.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(named, found, strict=True))


def _apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> Tensor:
    """Return the largest difference of two gradients, relative to the size of each tensor."""
    differences = [(one[name] - other[name]).abs().max() / other[name].abs().max().clamp(min=1.0) for name in one]
    return torch.stack(differences).max()

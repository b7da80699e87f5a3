"""The fused path, which trains, and the explicit path, which returns weights, compute the same function.

The check covers the output at non-padding positions and the gradient of every parameter. Fully
masked rows are checked in ``masked_rows``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.testing.invariant import invariant
from headtohead.testing.kernels import KERNELS, force_kernel
from headtohead.testing.subject import Subject, explicit_forward, forward, with_mask_value
from headtohead.testing.verdict import Verdict, does_not_apply, within

MASK_VALUES = ("-inf", "-1e9", "additive")
"""Values of ``model.mask_value``."""


@invariant("parity")
def fused_path_equals_explicit_path(subject: Subject) -> Verdict:
    """Fused and explicit path agree at non-padding positions, forward and backward, for every mask value."""
    paths = subject.model.paths
    if "fused" not in paths.values():
        return does_not_apply("the variant trains on the explicit path")
    masked = any(not subject.mask(role).all() for role in paths)
    mask_values = MASK_VALUES if masked else MASK_VALUES[:1]
    differences = [difference for mask_value in mask_values for difference in _differences(subject, mask_value)]
    return within(
        float(torch.stack(differences).max()), "difference between fused and explicit path, outputs and gradients"
    )


def _differences(subject: Subject, mask_value: str) -> list[Tensor]:
    """Return the differences of each kernel from the explicit path, forward and backward."""
    model, sentences = subject.model, subject.sentences
    nonpad = sentences.target_nonpad
    generator = torch.Generator().manual_seed(17)
    weights = torch.randn(subject.reference_logits.shape, generator=generator, dtype=torch.float64)
    weights = weights * nonpad.unsqueeze(-1)
    with with_mask_value(model, mask_value):
        explicit = explicit_forward(model, sentences)
        expected = gradients(model, explicit, weights)
        differences = []
        for kernel in KERNELS:
            with force_kernel(kernel):
                fused = forward(model, sentences)
            differences.append((fused - explicit).detach()[nonpad].abs().max())
            differences.append(_relative_difference(gradients(model, fused, weights), expected))
    return differences


def gradients(model: Transformer, logits: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Return the gradient of ``(logits · weights).sum()`` for every parameter; zero where it is unused."""
    parameters = dict(model.named_parameters())
    tensors = torch.autograd.grad(
        (logits * weights).sum(), list(parameters.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(parameters, tensors, strict=True))


def _relative_difference(first: dict[str, Tensor], second: dict[str, Tensor]) -> Tensor:
    """Return the largest difference of two gradients, relative to the size of each tensor."""
    differences = [(first[name] - second[name]).abs().max() / second[name].abs().max().clamp(min=1.0) for name in first]
    return torch.stack(differences).max()

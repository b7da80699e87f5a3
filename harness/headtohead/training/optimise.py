"""Learning-rate schedules, and clipping that no member feels from another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headtohead.experiment.schema import TrainConfig


def learning_rate(train: TrainConfig, step: int, steps: int) -> float:
    """Return the rate of optimizer step ``step`` (from 1) of ``steps``.

    Warm-up is linear from 0. ``inverse-sqrt`` then falls with the square root of the step (Vaswani
    et al. 2017, section 5.3, with the peak set directly), ``cosine`` to 0 at the last step
    (Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts).
    """
    warmup = train.warmup_steps
    if step < warmup:
        return train.lr * step / warmup
    if train.schedule == "inverse-sqrt":
        return train.lr * math.sqrt(max(warmup, 1) / max(step, 1))
    if train.schedule == "cosine":
        progress = (step - warmup) / max(1, steps - warmup)
        return train.lr * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return train.lr


def make_optimizer(train: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Return Adam or AdamW over all members at once; both work element by element."""
    kinds: dict[str, type[torch.optim.Adam]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    kind = kinds[train.optimizer]
    return kind(
        model.parameters(), lr=train.lr, betas=train.betas, eps=train.eps,
        weight_decay=train.weight_decay, fused=True,
    )  # fmt: skip


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """Return each member's norm over gradients ``[member, ...]``, as ``[member]``."""
    norms: Sequence[Tensor]
    if len(gradients[0]) == 1:
        norms = list(torch._foreach_norm(list(gradients)))
        total: Tensor = torch.linalg.vector_norm(torch.stack(norms)).unsqueeze(0)
        return total
    norms = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
    each: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return each


def clip_gradients(parameters: Sequence[nn.Parameter], largest: float) -> Tensor:
    """Scale each member's gradient down to norm ``largest``, and return the norms before.

    As ``torch.nn.utils.clip_grad_norm_`` for each member alone.
    """
    gradients = [one.grad for one in parameters if one.grad is not None]
    norms = gradient_norms(gradients)
    factors = (largest / (norms + 1e-6)).clamp(max=1.0)
    if len(factors) == 1:
        torch._foreach_mul_(gradients, factors[0])
    else:
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))
    return norms

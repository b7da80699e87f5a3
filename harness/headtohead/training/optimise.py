"""Learning-rate schedules, what is trained, and clipping that no member feels from another."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from headtohead.errors import HeadToHeadError
from headtohead.experiment.schema import ModelPart, TrainConfig


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
    """Return Adam or AdamW over what is trained, all members at once, element by element."""
    kinds: dict[str, type[torch.optim.Adam]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    kind = kinds[train.optimizer]
    return kind(
        trained(model), lr=train.lr, betas=train.betas, eps=train.eps,
        weight_decay=train.weight_decay, fused=True,
    )  # fmt: skip


def part_of(name: str) -> ModelPart:
    """Return the part that a parameter belongs to, told by its name in the model.

    >>> part_of("decoder.0.cross_branch.norm.weight")
    'norm'
    """
    root = name.partition(".")[0]
    if root.startswith("positional"):
        return "positional"
    if "norm" in name:
        return "norm"
    if "feed_forward" in name or ".between" in name:
        return "feed-forward"
    if "embedding" in root:
        return "embeddings"
    if root == "words":
        return "words"
    if ".cross" in name:
        return "cross-attention"
    return "encoder-attention" if root == "encoder" else "decoder-attention"


def freeze(model: nn.Module, parts: Collection[ModelPart] | None) -> None:
    """Let only the parameters of some parts be trained; all of them where ``parts`` is None.

    Raises:
        HeadToHeadError: If these parts have none.
    """
    if parts is None:
        return
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(part_of(name) in parts)
    if not trained(model):
        raise HeadToHeadError(
            f"train.parts: {', '.join(parts)} has no parameters here, so nothing would be trained; "
            "name other parts, or use epochs: 0"
        )


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are not frozen."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


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

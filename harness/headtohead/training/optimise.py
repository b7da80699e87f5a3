"""Learning-rate schedules, what is trained, and clipping that no member feels from another."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from headtohead.errors import HeadToHeadError
from headtohead.model.members import PerMember, as_index
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import ModelPart, TrainConfig


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


class StackOptimizer:
    """Adam or AdamW over all members of a stack at once, element by element.

    Members that stand side by side and have the same rates are updated together; where rates
    differ, each such range is a slice of the same parameters, so that a member is updated exactly
    as it would be alone.

    Args:
        trains: The training section of each member.
        model: Whose trained parameters are updated.
        steps: Of the whole training, which schedules depend on.
        capturable: Whether steps are captured in CUDA graphs.
    """

    def __init__(self, trains: Sequence[TrainConfig], model: Transformer, steps: int, capturable: bool = False) -> None:
        self.trains, self.steps = trains, steps
        ranges = alike(trains, _rates)
        parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self._slices: list[tuple[Tensor, nn.Parameter, slice]] = []
        self._parts: list[tuple[str, slice]] = []
        groups: list[dict[str, Any]] = []
        self.members: list[tuple[int, ...]] = []
        """The members along the first dimension of each updated tensor."""
        for members in ranges:
            first = trains[members[0]]
            own: list[Tensor] = []
            for name, parameter in parameters.items():
                owners = model.members_of(name)
                places = [place for place, one in enumerate(owners) if one in members]
                if not places:
                    continue
                self.members.append(tuple(owners[place] for place in places))
                part = slice(places[0], places[-1] + 1)
                self._parts.append((name, part))
                if len(places) == len(owners):
                    own.append(parameter)
                else:
                    view = parameter.detach()[part]
                    self._slices.append((view, parameter, part))
                    own.append(view)
            if own:
                groups.append({"params": own, "weight_decay": first.weight_decay, "train": first})
        kinds: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        device = next(iter(parameters.values())).device
        on_gpu = device.type == "cuda"
        for group in groups:
            # A tensor, so that a recorded step reads what is written there, of the type that
            # torch's fused update wants.
            group["lr"] = torch.zeros((), device=device, dtype=torch.float32 if on_gpu else torch.float64)
        first = trains[0]
        self.optimizer = kinds[first.optimizer](
            groups, betas=first.betas, eps=first.eps, fused=True, capturable=capturable
        )

    def begin(self, number: int) -> None:
        """Say which step follows, from 1: write its learning rates down."""
        for group in self.optimizer.param_groups:
            group["lr"].fill_(learning_rate(group["train"], number, self.steps))

    def update(self) -> None:
        """Take the step that was begun, and forget the gradients."""
        for view, parameter, part in self._slices:
            view.grad = None if parameter.grad is None else parameter.grad[part]
        self.optimizer.step()
        self.clear_gradients()

    def clear_gradients(self) -> None:
        """Set the gradients of all trained parameters to None."""
        self.optimizer.zero_grad(set_to_none=True)
        for _, parameter, _ in self._slices:
            parameter.grad = None

    def rate(self, member: int, number: int) -> float:
        """Return the learning rate of a member at a step."""
        return learning_rate(self.trains[member], number, self.steps)

    def state(self) -> dict[str, Tensor]:
        """Return what an update changes beside the weights, the tensors themselves."""
        return {
            f"{index}/{name}": value
            for index, one in enumerate(self._updated())
            for name, value in self.optimizer.state[one].items()
        }

    def rows(self) -> dict[str, Tensor]:
        """Return what a resume needs, ``parameter/kind``, with the axis of members first."""
        found: dict[str, list[Tensor]] = {}
        for (name, part), one in zip(self._parts, self._updated(), strict=True):
            for kind, value in self.optimizer.state[one].items():
                rows = value if value.dim() else value.expand(part.stop - part.start)
                found.setdefault(f"{name}/{kind}", []).append(rows.cpu())
        return {name: torch.cat(parts) for name, parts in found.items()}

    def load(self, rows: Callable[[str], Mapping[str, Tensor]]) -> None:
        """Go on from what ``rows`` returned, given by kind for the name of a parameter."""
        for (name, part), one in zip(self._parts, self._updated(), strict=True):
            self.optimizer.state[one] = {
                kind: (value[part.start] if kind == "step" else value[part]).to(one.device).clone()
                for kind, value in rows(name).items()
            }

    def _updated(self) -> Iterator[Tensor]:
        for group in self.optimizer.param_groups:
            yield from group["params"]


def alike(trains: Sequence[TrainConfig], key: Callable[[TrainConfig], object]) -> list[range]:
    """Return the members that stand side by side and are the same in ``key``.

    >>> from headtohead.schema.config import TrainConfig
    >>> alike([TrainConfig(lr=one) for one in (0.1, 0.1, 0.2)], lambda train: train.lr)
    [range(0, 2), range(2, 3)]
    """
    found, start = [], 0
    for _, members in groupby(trains, key):
        end = start + sum(1 for _ in members)
        found.append(range(start, end))
        start = end
    return found


def _rates(train: TrainConfig) -> object:
    return train.lr, train.weight_decay, train.warmup_steps, train.schedule


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
            f"quirks.trainable: {', '.join(parts)} has no parameters here, so nothing would be trained; "
            "name other parts, or use epochs: 0"
        )


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are not frozen."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def gradient_norms(gradients: Sequence[Tensor], owners: Sequence[Sequence[int]] | None = None) -> Tensor:
    """Return each member's norm over gradients, as ``[member]``.

    Args:
        gradients: ``[member, ...]``, or ``[member of some, ...]``.
        owners: The members of each, where some are of some only.
    """
    norms: Sequence[Tensor]
    if owners is None and len(gradients[0]) == 1:
        norms = list(torch._foreach_norm(list(gradients)))
        total: Tensor = torch.linalg.vector_norm(torch.stack(norms)).unsqueeze(0)
        return total
    norms = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
    if owners is not None:
        members = 1 + max(map(max, owners))
        norms = [_spread(one, own, members) for one, own in zip(norms, owners, strict=True)]
    each: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return each


def clip_gradients(
    parameters: Sequence[nn.Parameter], largest: float | PerMember, owners: Sequence[Sequence[int]] | None = None
) -> Tensor:
    """Scale each member's gradient down to norm ``largest``, and return the norms before.

    As ``torch.nn.utils.clip_grad_norm_`` for each member alone.

    Args:
        parameters: ``[member, ...]``, or of some members only.
        largest: Of all members, or of each.
        owners: The members of each parameter, where some are of some only.
    """
    gradients = [one.grad for one in parameters if one.grad is not None]
    if owners is not None:
        owners = [own for one, own in zip(parameters, owners, strict=True) if one.grad is not None]
    norms = gradient_norms(gradients, owners)
    limit = largest.like(norms) if isinstance(largest, PerMember) else largest
    factors = (limit / (norms + 1e-6)).clamp(max=1.0)
    if len(factors) == 1:
        torch._foreach_mul_(gradients, factors[0])
        return norms
    for number, gradient in enumerate(gradients):
        mine = (
            factors
            if len(gradient) == len(factors) or owners is None
            else (factors.index_select(0, as_index(tuple(owners[number]), factors.device)))
        )
        gradient.mul_(mine.view(-1, *[1] * (gradient.dim() - 1)))
    return norms


def _spread(norms: Tensor, owners: Sequence[int], members: int) -> Tensor:
    """Bring norms of some members to all: those that have no such gradient have 0."""
    if len(owners) == members:
        return norms
    return norms.new_zeros(members).index_copy(0, as_index(tuple(owners), norms.device), norms)

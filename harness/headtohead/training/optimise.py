"""The optimizer of a stack, trainable parameters, and clipping per member."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from headtohead.errors import HeadToHeadError
from headtohead.model.cuda import on_cuda
from headtohead.model.layers import StackedLinear
from headtohead.model.members import PerMember, index_tensor
from headtohead.model.transformer import Transformer
from headtohead.planning.schedule import learning_rate
from headtohead.plugins.component import takes_weight_decay
from headtohead.schema.choices import OPTIMIZERS
from headtohead.schema.run_config import ModelPart, TrainConfig

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration of Muon (https://kellerjordan.github.io/posts/muon, 2024)."""

NEWTON_SCHULZ_STEPS, MUON_MOMENTUM, MUON_RMS = 5, 0.95, 0.2
"""Iterations and momentum of the same source; root mean square of the updates (Liu et al. 2025, arXiv:2502.16982)."""


class StackOptimizer:
    """Adam, AdamW or Muon for all members of a stack.

    Adjacent members with equal settings are updated together. Where settings differ, each range of
    members is a slice of the same parameters. Every member is updated exactly as if trained alone.
    It calls the function of torch's optimizers and not their classes, which import ``torch._dynamo`` for a second.
    """

    def __init__(
        self,
        trains: Sequence[TrainConfig],
        model: Transformer,
        steps: int,
        capturable: bool = False,
    ) -> None:
        self.trains = trains
        self.steps = steps
        self.capturable = capturable
        self.groups: list[dict[str, Any]] = []
        """Tensors with the same settings and the same weight decay, as in torch's ``param_groups``."""
        self._updated: list[Tensor] = []
        """The tensors of all groups: trainable parameters, or slices of them."""
        self.members: list[tuple[int, ...]] = []
        """The members along the first dimension of each updated tensor."""
        self._slices: list[tuple[Tensor, nn.Parameter, slice]] = []
        """The updated tensors that are slices, with their parameter and the range of its rows."""
        self._matrices: dict[Tensor, tuple[int, ...]] = {}
        """With Muon, the updated tensors of linear maps, and the widths of the maps side by side in them."""
        self.moments: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)
        """The number of steps and the moving averages of each tensor with a gradient."""
        for _, equal_members in groupby(range(len(trains)), key=trains.__getitem__):
            self._add_groups(model, list(equal_members))
        device = self._updated[0].device
        # Tensors, so that a captured step uses their current values, and of the same tensor, so that a step sets them
        # in one copy. The dtype is what torch's fused update requires.
        dtype = torch.float32 if device.type == "cuda" else torch.float64
        self._rates = torch.zeros(len(self.groups), device=device, dtype=dtype)
        for index, group in enumerate(self.groups):
            group["lr"] = self._rates[index]

    def _add_groups(self, model: Transformer, members: Sequence[int]) -> None:
        """Add the parameters of adjacent members with equal settings, in a group for each weight decay."""
        train = self.trains[members[0]]
        widths: dict[str, tuple[int, ...]] = {}
        if OPTIMIZERS[train.optimizer].orthogonalises:
            widths = _matrix_widths(model)
        by_decay: defaultdict[float, list[tuple[Tensor, tuple[int, ...]]]] = defaultdict(list)
        for name, parameter, owners in model.owned_parameters():
            rows = [row for row, owner in enumerate(owners) if owner in members]
            if not rows or not parameter.requires_grad:
                continue
            tensor: Tensor = parameter
            if len(rows) < len(owners):
                part = slice(rows[0], rows[-1] + 1)  # owners ascend, and the members are adjacent
                tensor = parameter.detach()[part]
                self._slices.append((tensor, parameter, part))
            if name in widths:
                self._matrices[tensor] = widths[name]
            tensor_members = tuple(owners[row] for row in rows)
            by_decay[weight_decay(parameter, train)].append((tensor, tensor_members))
        for decay, tensors in by_decay.items():
            params = [tensor for tensor, _ in tensors]
            self.groups.append({"params": params, "weight_decay": decay, "train": train})
            self._updated += params
            self.members += [tensor_members for _, tensor_members in tensors]

    def set_step(self, step: int) -> None:
        """Set the learning rates of a step, from 1."""
        rates = [learning_rate(group["train"], step, self.steps) for group in self.groups]
        if len(set(rates)) == 1:
            self._rates.fill_(rates[0])
        else:
            # From pinned memory, the copy does not wait for the device.
            values = torch.tensor(rates, dtype=self._rates.dtype, pin_memory=self._rates.is_cuda)
            self._rates.copy_(values, non_blocking=True)

    def update(self) -> None:
        """Update the parameters and clear the gradients."""
        for view, parameter, part in self._slices:
            view.grad = None
            if parameter.grad is not None:
                view.grad = parameter.grad[part]
        with torch.no_grad():
            for group in self.groups:
                self._update(group)
        self.clear_gradients()

    def _update(self, group: Mapping[str, Any]) -> None:
        first = self.trains[0]
        updated = [tensor for tensor in group["params"] if tensor.grad is not None]
        if self._matrices:
            self._update_matrices(group, [tensor for tensor in updated if tensor in self._matrices])
            updated = [tensor for tensor in updated if tensor not in self._matrices]
        for tensor in updated:
            if not self.moments[tensor]:
                step = torch.zeros((), device=tensor.device, dtype=torch.float32)
                average = torch.zeros_like(tensor)
                square = torch.zeros_like(tensor)
                self.moments[tensor] |= {"step": step, "exp_avg": average, "exp_avg_sq": square}
        moments = [self.moments[tensor] for tensor in updated]
        beta1, beta2 = first.betas
        adam(
            updated,
            [tensor.grad for tensor in updated],
            [moment["exp_avg"] for moment in moments],
            [moment["exp_avg_sq"] for moment in moments],
            [],
            [moment["step"] for moment in moments],
            fused=True,
            capturable=self.capturable,
            decoupled_weight_decay=OPTIMIZERS[first.optimizer].decouples_decay,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=first.eps,
            maximize=False,
        )

    def _update_matrices(self, group: Mapping[str, Any], updated: Sequence[Tensor]) -> None:
        """Update linear maps by Muon; maps of equal shape are orthogonalised together."""
        by_shape: defaultdict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for tensor in updated:
            assert tensor.grad is not None
            moments = self.moments[tensor]
            widths = self._matrices[tensor]
            if not moments:
                moments["momentum"] = torch.zeros_like(tensor)
            average = moments["momentum"].lerp_(tensor.grad, 1 - MUON_MOMENTUM)
            direction = tensor.grad.lerp(average, MUON_MOMENTUM)
            tensor.mul_(1 - group["lr"] * group["weight_decay"])
            weights = tensor.split(widths, -1)
            directions = direction.split(widths, -1)
            for weight, weight_direction in zip(weights, directions, strict=True):
                by_shape[weight.shape[1], weight.shape[2]].append((weight, weight_direction))
        for shape, maps in by_shape.items():
            rate = group["lr"] * (MUON_RMS * max(shape) ** 0.5)
            joined = torch.cat([weight_direction for _, weight_direction in maps])
            sizes = [len(weight) for weight, _ in maps]
            updates = (orthogonalised(joined) * rate).split(sizes)
            for (weight, _), update in zip(maps, updates, strict=True):
                weight.sub_(update)

    def clear_gradients(self) -> None:
        """Set the gradients of all trainable parameters to None."""
        for tensor in self._updated:
            tensor.grad = None
        for _, parameter, _ in self._slices:
            parameter.grad = None

    def rate(self, member: int, step: int) -> float:
        """Return the learning rate of a member at a step."""
        return learning_rate(self.trains[member], step, self.steps)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that an update changes besides the weights."""
        state = {}
        for index, tensor in enumerate(self._updated):
            for name, value in self.moments[tensor].items():
                state[f"{index}/{name}"] = value
        return state

    def owned_moments(self) -> Iterator[tuple[str, Tensor, tuple[int, ...] | None]]:
        """Yield the kind of each tensor of `state`, the tensor, and the members along its first dimension.

        A scalar, such as the number of updates, has no dimension of members: None.
        """
        for tensor, members in zip(self._updated, self.members, strict=True):
            for kind, value in self.moments[tensor].items():
                yield kind, value, members if value.dim() else None

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load what ``state`` returned."""
        for name, value in state.items():
            index, _, kind = name.partition("/")
            tensor = self._updated[int(index)]
            self.moments[tensor][kind] = value.to(tensor.device).clone()


def _matrix_widths(model: Transformer) -> dict[str, tuple[int, ...]]:
    """Return the weights of linear maps that Muon updates, with the widths of the maps side by side in them."""
    widths = {}
    for name, layer in model.named_modules():
        if isinstance(layer, StackedLinear) and name != "lm_head":
            widths[f"{name}.weight"] = layer.outputs
    return widths


def weight_decay(parameter: Tensor, train: TrainConfig) -> float:
    """Return the weight decay of a parameter ``[member, ...]``."""
    if not takes_weight_decay(parameter):
        return 0.0
    # Axes before the last two count layers.
    is_vector = sum(size > 1 for size in parameter.shape[1:][-2:]) < 2
    if is_vector and train.decay == "matrices":
        return 0.0
    return train.weight_decay


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return ``[matrix, in, out]`` with all singular values near 1 (Muon: a quintic Newton-Schulz iteration)."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


def part_of(name: str) -> ModelPart:
    """Return the part of the model to which a parameter of this name belongs.

    >>> part_of("decoder.0.cross_branch.norm.weight")
    'norm'
    """
    root = name.partition(".")[0]
    if root.startswith("positional"):
        return "positional"
    if "norm" in name:
        return "norm"
    if "feed_forward" in name:
        return "feed-forward"
    if "embedding" in root:
        return "embeddings"
    if root == "lm_head":
        return "lm-head"
    if ".cross" in name:
        return "cross-attention"
    return "encoder-attention" if root == "encoder" else "decoder-attention"


def freeze(model: nn.Module, parts: Collection[ModelPart] | None) -> None:
    """Freeze the parameters of all other parts; with None, freeze nothing.

    Raises:
        HeadToHeadError: If these parts have no parameters.
    """
    if parts is None:
        return
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(part_of(name) in parts)
    if not trainable_parameters(model):
        raise HeadToHeadError(
            f"train.trainable: {', '.join(parts)} has no parameters in this model, so nothing would be "
            "trained; list other parts, or use epochs: 0"
        )


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def gradient_norms(
    gradients: Sequence[Tensor], owners: Sequence[Sequence[int]] | None = None
) -> Tensor:
    """Return the norm of each member's gradients, ``[member]``.

    Args:
        gradients: ``[member, ...]``.
        owners: The members of each gradient; None if all gradients have all members.
    """
    norm: Callable[..., Tensor] = torch.linalg.vector_norm
    if owners is None and len(gradients[0]) > 1 and on_cuda(gradients[0]):
        # A copy costs less than a launch per parameter.
        return norm(torch.cat([gradient.flatten(1) for gradient in gradients], dim=1), dim=1)
    if owners is None and len(gradients[0]) == 1:
        return norm(torch.stack(list(torch._foreach_norm(list(gradients))))).unsqueeze(0)
    norms = [norm(gradient.flatten(1), dim=1) for gradient in gradients]
    if owners is not None:
        members = 1 + max(map(max, owners))
        for number, owner in enumerate(owners):
            values = norms[number]
            if len(owner) < members:  # members without a gradient have the norm 0
                zeros = values.new_zeros(members)
                norms[number] = zeros.index_copy(0, _index(owner, values), values)
    return norm(torch.stack(norms), dim=0)


def clip_gradients(
    parameters: Sequence[nn.Parameter],
    largest: float | PerMember,
    owners: Sequence[Sequence[int]] | None = None,
) -> Tensor:
    """Clip each member's gradients to norm ``largest``, and return the norms before clipping.

    This equals ``torch.nn.utils.clip_grad_norm_`` for each member separately.

    Args:
        parameters: ``[member, ...]``.
        largest: Maximum norm of all members, or per member.
        owners: The members of each parameter; None if all parameters have all members.
    """
    gradients = []
    gradient_owners: list[Sequence[int]] = []
    for number, parameter in enumerate(parameters):
        if parameter.grad is None:
            continue
        gradients.append(parameter.grad)
        if owners is not None:
            gradient_owners.append(owners[number])
    norms = gradient_norms(gradients, gradient_owners or None)
    limit = largest.vector_for(norms) if isinstance(largest, PerMember) else largest
    factors = (limit / (norms + 1e-6)).clamp(max=1.0)
    if len(factors) == 1:
        torch._foreach_mul_(gradients, factors[0])
        return norms
    # torch.split_with_sizes_copy of joined gradients would be a single launch, but copies addresses from host memory,
    # which is not valid when a captured step is replayed.
    for number, gradient in enumerate(gradients):
        own_factors = factors
        if gradient_owners and len(gradient) < len(factors):
            own_factors = factors.index_select(0, _index(gradient_owners[number], factors))
        gradient.mul_(own_factors.view(-1, *[1] * (gradient.dim() - 1)))
    return norms


def _index(owner: Sequence[int], like: Tensor) -> Tensor:
    return index_tensor(tuple(owner), like.device)

"""The operations and bytes of a training step on CUDA, counted on the device ``meta``; no GPU is necessary.

    python benchmarks/gpu.py --dry

An operation launches at least one kernel. Bytes are those of all inputs and outputs of an operation. The least time
on a GPU is the largest of three: bytes at its memory's rate, FLOPs at its rate of products, and launches of a captured
step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from plain import Size
from stacks import SIZES, stack_training, step_of
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from headtohead.model.cuda import cuda_layout

STEPS: Sequence[tuple[Size, Sequence[int]]] = ((SIZES[0], (1, 16, 256)), (SIZES[3], (1, 8)))
"""Sizes and numbers of members."""

RATES = [{"train": {"lr": 1e-3 * (1 + index)}} for index in range(16)]

BYTES_PER_SECOND, FLOPS_PER_SECOND, LAUNCHES_PER_SECOND = 3.35e12, 495e12, 5e5
"""Of an H100: memory and dense tf32 products by its data sheet; 2 µs per operation of a captured step are assumed."""

NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "set_"}
NO_KERNEL |= {"_unsafe_view", "_record_function_enter_new", "_record_function_exit"}

SELECTING = {"gather", "index", "embedding", "scatter_add_"}
"""Operations that access as many elements of their first argument as they have indices."""


class Budget(TorchDispatchMode):
    """Counts the operations of a computation by name, their bytes and FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.bytes = self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func.overloadpacket
        if not func.is_view and packet.__name__ not in NO_KERNEL:
            selects = packet.__name__ in SELECTING
            self.add(packet.__name__, (args[1:], args[-1]) if selects else (args, kwargs, out))
            formula: Callable[..., int] | None = flop_registry.get(packet)
            self.flops += formula(*args, **kwargs, out_val=out) if formula else 0
        return out

    def add(self, name: str, tensors: Any) -> None:
        self.operations[name] += 1
        self.bytes += sum(bytes_of(leaf) for leaf in tree_leaves(tensors) if isinstance(leaf, Tensor))

    @property
    def least_seconds(self) -> float:
        """The least seconds of a captured step."""
        launches = sum(self.operations.values()) / LAUNCHES_PER_SECOND
        return max(self.bytes / BYTES_PER_SECOND, self.flops / FLOPS_PER_SECOND, launches)


def bytes_of(tensor: Tensor) -> int:
    """Return the bytes of the elements of a tensor; elements of expanded axes count once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return torch.Size(sizes).numel() * tensor.element_size()


class CudaKernels(TorchFunctionMode):
    """Replaces calls for which torch has no kernel on ``meta`` by what they launch on CUDA."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            q, k, v = args
            mask = kwargs["attn_mask"]
            mask = None if mask is None else mask.expand(*q.shape[:3], k.shape[2])
            efficient = torch.ops.aten._scaled_dot_product_efficient_attention
            return efficient(q, k, v, mask, True, scale=kwargs["scale"])[0]
        if func in (torch._fused_adam_, torch._fused_adamw_):
            # It reads weights, gradients and two moments, and writes all but the gradients.
            self.budget.add(func.__name__, (args[:4], args[0], args[2:4]))
            return None
        return func(*args, **kwargs)


def step_budget(size: Size, members: int, overrides: Sequence[dict[str, Any]]) -> Budget:
    """Return the budget of the second step of a stack, as it is captured."""
    with cuda_layout(), CudaKernels() as kernels:
        step = step_of(stack_training(size, members, torch.device("meta"), overrides), size)
        step()
        kernels.budget = Budget()
        with kernels.budget as budget:
            step()
    return budget


def table() -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield (
        "| size | members | dropout | learning rates | operations | MB | GFLOPs | least ms | limit | most frequent |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---|---|"
    for size, members in STEPS:
        cases = [(count, rate, 1) for count in members for rate in (0.0, 0.1)]
        cases += [(count, 0.1, 16) for count in members if count == 16]
        for count, rate, rates in cases:
            overrides = [{**own, "model": {"dropout": rate}} for own in (RATES if rates > 1 else [{}])]
            budget = step_budget(size, count, overrides)
            limits = {
                "launches": sum(budget.operations.values()) / LAUNCHES_PER_SECOND,
                "memory": budget.bytes / BYTES_PER_SECOND,
                "products": budget.flops / FLOPS_PER_SECOND,
            }
            frequent = ", ".join(f"{name} {number}" for name, number in budget.operations.most_common(4))
            yield (
                f"| {size.name} | {count} | {rate} | {rates} | {sum(budget.operations.values())} | "
                f"{budget.bytes / 1e6:.1f} | {budget.flops / 1e9:.2f} | {budget.least_seconds * 1000:.2f} | "
                f"{max(limits, key=limits.__getitem__)} | {frequent} |"
            )

"""A CUDA graph capture on a CPU: operations are recorded without executing them.

As on a GPU, a capture has static memory: every operation gets the memory of its outputs while it is
recorded, and nothing writes to that memory before the graph is replayed. Here it holds NaN, or 0
for integers, until then. Views are computed at once, because they are only metadata. Operations
that copy numbers to the host raise, as CUDA does. A replay executes the operations in order, on the
recorded tensors.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

Fault = Callable[[int, str], None]
"""Called with index and name of every operation; raises if a test plants a fault there."""

COPIES_TO_HOST = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")


def no_fault(number: int, name: str) -> None:
    """Plant no fault."""


class Capture(TorchDispatchMode):
    """The recorded operations of a call."""

    def __init__(self, fault: Fault = no_fault) -> None:
        super().__init__()
        self.fault = fault
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.fault(len(self.operations), name)
        if name in COPIES_TO_HOST:
            raise RuntimeError("operation not permitted when stream is capturing")
        if func.is_view:
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            found = _written(func._schema, args, kwargs)
            self.operations.append((func, args, kwargs, None))
            return found
        # Executed for the shapes and strides of its outputs; the numbers are dropped.
        found = tree_map(_static, func(*args, **kwargs))
        self.operations.append((func, args, kwargs, found))
        return found

    @torch.no_grad()
    def replay(self, fault: Fault = no_fault) -> None:
        """Execute the operations."""
        for number, (func, args, kwargs, found) in enumerate(self.operations):
            fault(number, func.overloadpacket.__name__)
            again = func(*args, **kwargs)
            if found is not None:
                for old, new in zip(tensors(found), tensors(again), strict=True):
                    old.copy_(new)


def _static(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    fixed = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return fixed.fill_(torch.nan if value.is_floating_point() else 0)


def _written(schema: Any, args: Any, kwargs: Any) -> Any:
    """Return the arguments that an in-place operation returns."""
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    by_alias = {
        frozenset(argument.alias_info.before_set): given.get(argument.name)
        for argument in schema.arguments
        if argument.alias_info is not None
    }
    found = tuple(by_alias[frozenset(output.alias_info.before_set)] for output in schema.returns)
    return found[0] if len(found) == 1 else found or None


def tensors(value: Any) -> list[Tensor]:
    """Return all tensors in arguments or results."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for part in value for tensor in tensors(part)]

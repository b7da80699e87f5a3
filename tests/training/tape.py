"""A record of what a call does on a CPU, replayed as a CUDA graph would be.

Every operation below autograd is written down with the tensors and numbers that it was given.
Replayed, it reads outside memory where that stands, its own results where they were made, and
numbers as they were: what a CUDA graph does, made visible where there is no GPU.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


class Tape(TorchDispatchMode):
    """The operations of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self.made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {storage(one) for one in tensors((args, kwargs))}
        found = func(*args, **kwargs)
        # What was recorded stays, so that no later tensor can have its identity.
        self.operations.append((func, args, kwargs, found))
        self.made |= {storage(one) for one in tensors(found)} - (given - self.made)
        return found

    def replay(self) -> None:
        """Do all of it again."""
        results: dict[int, Tensor] = {}
        memory: dict[int, Tensor] = {}

        def now(one: Any) -> Any:
            if not isinstance(one, Tensor):
                return one
            if id(one) in results:
                return results[id(one)]
            if storage(one) in self.made:
                # Autograd hands out what it saved as a new tensor on the same memory.
                own = memory[storage(one)]
                empty = torch.empty(0, dtype=one.dtype)
                return empty.set_(
                    own.untyped_storage(), one.storage_offset(), one.shape, one.stride()
                )
            return one

        with torch.no_grad():
            for func, args, kwargs, found in self.operations:
                again = func(*tree_map(now, args), **tree_map(now, kwargs))
                for old, new in zip(tensors(found), tensors(again), strict=True):
                    results[id(old)] = new
                    if storage(old) in self.made:
                        memory[storage(old)] = new


def storage(one: Tensor) -> int:
    return one.untyped_storage()._cdata


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [one for part in value for one in tensors(part)]

"""Counting the operations of a computation: on the CPU where that is quick, else of shapes alone.

Shapes of torch's device ``meta`` cost nothing to compute. But torch finds many of them in Python
and loads its compiler for that, which takes longer than all else that a small plan does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

MOST_NUMBERS = 2**24
"""Numbers of a model that is computed; more are counted as shapes. 64 MiB in float32."""

MOST_FLOPS = 2**30
"""Operations of a model that is computed: some 50 ms of a core."""

Result = TypeVar("Result")


class Operations(TorchDispatchMode):
    """Counts the floating-point operations of products, by torch's own formulas."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say no: torch would load its compiler to keep it out of ``__torch_dispatch__``."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute one operation and count it."""
        named = kwargs or {}
        out = func(*args, **named)
        formula: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **named, out_val=out)
        return out


def counted(compute: Callable[[Operations], Result]) -> Result:
    """Return what a computation returns that asks for shapes of the device ``meta``.

    It is computed on the CPU, its weights being zeros, and once more as shapes where that turns out
    to be much. What it does within the operations that it is given is counted.
    """
    # Of the kernels of attention, torch counts this one alone on a CPU.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), one_thread():
        try:
            with _OnCpu():
                return compute(_Few())
        except _TooMany:
            return compute(Operations())


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: on tensors that are small, more only cost time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _TooMany(Exception):
    """What is computed is too large to be."""


class _Few(Operations):
    """Stops after too many operations."""

    def __torch_dispatch__(self, *given: Any, **named: Any) -> Any:
        out = super().__torch_dispatch__(*given, **named)
        if self.flops > MOST_FLOPS:
            raise _TooMany
        return out


class _OnCpu(TorchFunctionMode):
    """Makes on the CPU what is asked for as a shape without numbers, and zeros of what is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, with the CPU in place of ``meta``."""
        named = kwargs or {}
        if not any(_is_meta(one) for one in (*args, *named.values())):
            return func(*args, **named)
        if func is torch.empty:
            shape: Tensor = func(*args, **named)
            self.numbers += shape.numel()
            if self.numbers > MOST_NUMBERS:
                raise _TooMany
            return torch.zeros(shape.shape, dtype=shape.dtype, requires_grad=shape.requires_grad)
        return func(
            *("cpu" if _is_meta(one) else one for one in args),
            **{name: "cpu" if _is_meta(one) else one for name, one in named.items()},
        )


def _is_meta(argument: Any) -> bool:
    if isinstance(argument, torch.device):
        return argument.type == "meta"
    return isinstance(argument, str) and argument == "meta"

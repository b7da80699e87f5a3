"""Counts the FLOPs of a computation: of small ones on the CPU, of large ones on the device ``meta``.

On ``meta``, torch computes shapes only. It does so in Python for many operations and loads its
compiler, which takes longer than everything else in a small plan. Small computations are therefore
executed on the CPU.
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
"""Largest model executed on the CPU, in parameters: 64 MiB in float32."""

MOST_FLOPS = 2**30
"""Largest number of FLOPs executed on the CPU: about 50 ms of a core."""

Result = TypeVar("Result")


class Operations(TorchDispatchMode):
    """Counts the FLOPs of matrix products, using torch's formulas."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False; otherwise torch loads its compiler to exclude it from ``__torch_dispatch__``."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Execute an operation and count its FLOPs."""
        named = kwargs or {}
        out = func(*args, **named)
        formula: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **named, out_val=out)
        return out


def counted(compute: Callable[[Operations], Result]) -> Result:
    """Return the result of a computation that is written for the device ``meta``.

    It is executed on the CPU with weights of 0. If it turns out to be large, it is executed again
    on ``meta``. The computation counts FLOPs within the context of its argument.
    """
    # torch counts the FLOPs of no other attention kernel on a CPU.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), one_thread():
        try:
            with _OnCpu():
                return compute(_Few())
        except _TooMany:
            return compute(Operations())


@contextmanager
def one_thread() -> Iterator[None]:
    """Use a single thread within the context; for small tensors, more threads are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _TooMany(Exception):
    """The computation is too large for the CPU."""


class _Few(Operations):
    """Counts FLOPs, and raises ``_TooMany`` beyond ``MOST_FLOPS``."""

    def __torch_dispatch__(self, *given: Any, **named: Any) -> Any:
        out = super().__torch_dispatch__(*given, **named)
        if self.flops > MOST_FLOPS:
            raise _TooMany
        return out


class _OnCpu(TorchFunctionMode):
    """Creates tensors on the CPU instead of ``meta``, with zeros instead of uninitialised memory."""

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
        """Call a torch function with the device CPU instead of ``meta``."""
        named = kwargs or {}
        if not any(_is_meta(value) for value in (*args, *named.values())):
            return func(*args, **named)
        if func is torch.empty:
            shape: Tensor = func(*args, **named)
            self.numbers += shape.numel()
            if self.numbers > MOST_NUMBERS:
                raise _TooMany
            return torch.zeros(shape.shape, dtype=shape.dtype, requires_grad=shape.requires_grad)
        return func(
            *("cpu" if _is_meta(value) else value for value in args),
            **{name: "cpu" if _is_meta(value) else value for name, value in named.items()},
        )


def _is_meta(argument: Any) -> bool:
    if isinstance(argument, torch.device):
        return argument.type == "meta"
    return isinstance(argument, str) and argument == "meta"

"""Count the FLOPs of a computation; if it is small, on the CPU instead of the device ``meta``.

On ``meta``, torch computes shapes only. It does so in Python for many operations and loads its compiler, which takes
longer than everything else in a small plan. torch's ``FlopCounterMode`` loads the compiler on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


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


@contextmanager
def counted() -> Iterator[None]:
    """Use the attention kernel that has a FLOP formula in torch, a single thread and no gradients."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), one_thread():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Use a single thread within the context; for small tensors, more threads are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class OnCpu(TorchFunctionMode):
    """Creates tensors on the CPU instead of ``meta``, with zeros instead of uninitialised memory."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a torch function with the device CPU instead of ``meta``."""
        named = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        created = torch.zeros if func is torch.empty else func
        return created(*map(_on_cpu, args), **named)


def _on_cpu(value: Any) -> Any:
    return "cpu" if isinstance(value, str | torch.device) and str(value) == "meta" else value

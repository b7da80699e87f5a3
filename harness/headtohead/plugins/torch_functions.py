"""Detect plugins that replace functions of torch or use its generator, which would change other models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from headtohead.errors import HeadToHeadError


@contextmanager
def unchanged_torch(where: str) -> Iterator[None]:
    """Restore functions of torch that the context replaces and its random generator, and raise if there are changes.

    Functions of torch's main namespaces are compared by identity, before and after. A tensor sampled while a plugin is
    imported would differ between the processes of a study.

    Args:
        where: The plugin and its distribution, for the error.

    Raises:
        HeadToHeadError: With the replaced functions, or if the global random generator was used.
    """
    import torch

    owners, state = _owners(), torch.get_rng_state()
    before = {name: dict(vars(owner)) for name, owner in owners.items()}
    try:
        yield
    finally:
        replaced = [f"{name}.{key}" for name, owner in owners.items() for key in _restored(owner, before[name])]
    if replaced:
        more = f" and {len(replaced) - 3} more" if len(replaced) > 3 else ""
        raise HeadToHeadError(
            f"{where} replaces {', '.join(replaced[:3])}{more}; call a function of the plugin instead, "
            "because other variants use torch's"
        )
    if not torch.equal(torch.get_rng_state(), state):
        torch.set_rng_state(state)
        raise HeadToHeadError(
            f"{where} samples from torch's global generator when it is imported; sample in build with "
            "self.parameter or self.buffer"
        )


def _owners() -> dict[str, Any]:
    import torch

    return {
        "torch": torch,
        "torch.nn.functional": torch.nn.functional,
        "torch.linalg": torch.linalg,
        "torch.autograd": torch.autograd,
        "torch.Tensor": torch.Tensor,
        "torch.nn.Module": torch.nn.Module,
        "torch.optim.Adam": torch.optim.Adam,
        "torch.optim.AdamW": torch.optim.AdamW,
    }


def _restored(owner: Any, before: dict[str, Any]) -> list[str]:
    """Restore the attributes of a module or class, and return the names of functions that had been replaced."""
    inherited = [vars(base) for base in owner.__mro__[1:]] if isinstance(owner, type) else []
    replaced = []
    for name in {**before, **vars(owner)}:
        value = vars(owner).get(name)
        if name in before:
            if value is before[name] or not callable(before[name]) or _by_torch(value, before[name]):
                continue
            setattr(owner, name, before[name])
        elif any(name in base for base in inherited):
            delattr(owner, name)
        else:
            continue
        replaced.append(name)
    return replaced


def _by_torch(new: Any, old: Any) -> bool:
    """Return whether torch itself wrapped a function, as the import of ``torch._dynamo`` does."""
    import torch

    folder = Path(torch.__file__).parent
    return (
        isinstance(new, FunctionType)
        and inspect.unwrap(new) is old
        and Path(new.__code__.co_filename).is_relative_to(folder)
    )

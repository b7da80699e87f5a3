"""Detect plugins that replace functions of torch or use its generator, which would change other models."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from headtohead.errors import HeadToHeadError


@contextmanager
def unchanged_torch(where: str) -> Iterator[None]:
    """Restore functions of torch that the context replaces and its random generator, and raise if there are changes.

    A tensor sampled while a plugin is imported would differ between the processes of a study.
    """
    import torch

    modules = ("torch", "torch.nn.functional", "torch.linalg", "torch.autograd", "torch.optim.adam")
    classes = ("torch.Tensor", "torch.nn.Module")
    owners = {name: pkgutil.resolve_name(name) for name in (*modules, *classes)}
    # Absent in a subclass: its base's function is replaced by a new attribute.
    before = [{name: vars(owner).get(name) for name in dir(owner)} for owner in owners.values()]
    state, replaced = torch.get_rng_state(), []
    try:
        yield
    finally:
        for (label, owner), functions in zip(owners.items(), before, strict=True):
            for name, old in functions.items():
                new = vars(owner).get(name)
                if new is not old and not _by_torch(new, old) and (old is None or callable(old)):
                    delattr(owner, name) if old is None else setattr(owner, name, old)
                    replaced.append(f"{label}.{name}")
    if replaced:
        raise HeadToHeadError(
            f"{where} replaces {replaced[0]}; call a function of the plugin instead, because other variants use torch's"
        )
    if not torch.equal(torch.get_rng_state(), state):
        torch.set_rng_state(state)
        raise HeadToHeadError(
            f"{where} samples from torch's global generator when it is imported; sample in build with "
            "self.parameter or self.buffer"
        )


def _by_torch(new: Any, old: Any) -> bool:
    """Return whether torch itself wrapped a function, as the import of ``torch._dynamo`` does."""
    import torch

    file = Path(new.__code__.co_filename) if isinstance(new, FunctionType) else None
    return file is not None and inspect.unwrap(new) is old and file.is_relative_to(Path(torch.__file__).parent)

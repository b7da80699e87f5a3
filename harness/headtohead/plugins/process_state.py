"""Detect plugins that change what all variants share: functions, default settings and random generators.

A replaced function of torch or headtohead would change the baseline too, and a number sampled while a plugin is
imported would differ between the processes of a study.
"""

from __future__ import annotations

import inspect
import pkgutil
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from headtohead.errors import HeadToHeadError
from headtohead.plugins.sources import OWN

TORCH_OWNERS = (
    "torch",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.linalg",
    "torch.autograd",
    "torch.special",
    "torch.optim.adam",
    "torch.Tensor",
    "torch.nn.Module",
    "torch.nn.Parameter",
)
"""Modules and classes of torch whose functions are compared."""

PREFIXES = tuple(f"{package}." for package in OWN)
"""Prefixes of the modules of headtohead whose functions a plugin may not replace."""

DENORMAL = 1e-310
"""A float64 number that becomes 0 if the process flushes denormal numbers."""


@dataclass(frozen=True)
class Setting:
    """A setting of torch that holds for the whole process."""

    name: str
    get: Callable[[], Any]
    restore: Callable[[Any], object]


def _settings() -> tuple[Setting, ...]:
    import torch

    def restore_mkldnn(enabled: bool) -> None:
        torch.backends.mkldnn.enabled = enabled  # type: ignore[assignment]

    return (
        Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting(
            "torch's precision of float32 products",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        Setting(
            "the flushing of denormal numbers",
            lambda: bool(torch.tensor(DENORMAL, dtype=torch.float64) * 1.0 == 0),
            torch.set_flush_denormal,
        ),
        Setting(
            "torch.backends.mkldnn.enabled", lambda: torch.backends.mkldnn.enabled, restore_mkldnn
        ),
        Setting(
            "torch's deterministic algorithms",
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
    )


def _generators() -> tuple[Setting, ...]:
    import numpy as np
    import torch

    return (
        Setting("torch's global generator", lambda: torch.get_rng_state().tolist(), _restore_torch),
        Setting("numpy's global generator", lambda: _numpy_state(), np.random.set_state),
        Setting("Python's global generator", random.getstate, random.setstate),
    )


def _restore_torch(state: list[int]) -> None:
    import torch

    torch.set_rng_state(torch.tensor(state, dtype=torch.uint8))


def _numpy_state() -> tuple[Any, ...]:
    import numpy as np

    name, keys, *rest = np.random.get_state()
    return (name, tuple(keys), *rest)  # a tuple compares by value, an array does not


@contextmanager
def unchanged_process(where: str, module: str = "") -> Iterator[None]:
    """Restore what the context changes for the whole process, and raise if there are such changes.

    Args:
        where: Names the plugin and what it does, for the error: "plugin 'mine.py' (file)".
        module: Import name of the plugin. Functions that it defines are also found in modules of headtohead that the
            context imports first.

    Raises:
        HeadToHeadError: If the context replaces a function of torch or headtohead, changes a setting of torch, or
            samples from a global generator.
    """
    functions = _functions()
    settings = [(setting, setting.get()) for setting in _settings()]
    generators = [(generator, generator.get()) for generator in _generators()]
    replaced: list[str] = []
    changed: list[str] = []
    sampled: list[str] = []
    try:
        yield
    finally:
        replaced += _restored(functions, module)
        changed += _reset(settings)
        sampled += _reset(generators)
    if replaced:
        raise HeadToHeadError(
            f"{where} replaces {replaced[0]}; call a function of the plugin instead, because other "
            "variants use the original function"
        )
    if changed:
        raise HeadToHeadError(
            f"{where} changes {changed[0]}; remove this, because it changes the other variants too"
        )
    if sampled:
        raise HeadToHeadError(
            f"{where} samples from {sampled[0]}; sample in build with self.parameter or self.buffer, "
            "and in hooks with PerMemberRNG"
        )


def _reset(settings: list[tuple[Setting, Any]]) -> list[str]:
    """Restore settings that changed, and return their names."""
    names = []
    for setting, before in settings:
        if setting.get() != before:
            setting.restore(before)
            names.append(setting.name)
    return names


Functions = dict[str, tuple[Any, dict[str, Any]]]
"""By the name of a module or class: the module or class, and its attributes."""


def _functions() -> Functions:
    """Return the attributes of torch's modules and classes, and of all loaded modules of headtohead."""
    functions: Functions = {}
    for name in TORCH_OWNERS:
        owner = pkgutil.resolve_name(name)
        # An inherited function is None here: a replacement becomes a new attribute of the subclass.
        functions[name] = owner, {attribute: vars(owner).get(attribute) for attribute in dir(owner)}
    for module in _host_modules():
        functions[module.__name__] = module, dict(vars(module))
        for cls in _classes(module):
            functions[f"{module.__name__}.{cls.__qualname__}"] = cls, dict(vars(cls))
    return functions


def _host_modules() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith(PREFIXES)]


def _classes(module: ModuleType) -> list[type]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _restored(functions: Functions, plugin: str) -> list[str]:
    """Restore functions that were replaced, and return their names."""
    names = []
    for label, (owner, before) in functions.items():
        after = vars(owner)
        for name, old in before.items():
            new = after.get(name)
            if new is old or not (old is None or callable(old)):
                continue
            if _is_defined_by(new, plugin) or not _is_internal(new, old, label):
                _restore(owner, name, old)
                names.append(f"{label}.{name}")
    if plugin:
        names += _replaced_in_new_modules(functions, plugin)
    return names


def _restore(owner: Any, name: str, old: Any) -> None:
    if old is None:
        delattr(owner, name)
    else:
        setattr(owner, name, old)


def _replaced_in_new_modules(functions: Functions, plugin: str) -> list[str]:
    """Return functions of a plugin in modules of headtohead that were not loaded before.

    Their originals are unknown and are not restored; the process must not train.
    """
    names = []
    for module in _host_modules():
        if module.__name__ in functions:
            continue
        owners: list[Any] = [module, *_classes(module)]
        for owner in owners:
            found = [name for name, value in vars(owner).items() if _is_defined_by(value, plugin)]
            names += [f"{owner.__name__}.{name}" for name in found]
    return names


def _is_defined_by(value: Any, plugin: str) -> bool:
    """Return whether a function is defined in a plugin."""
    package = str(getattr(value, "__module__", "")).partition(".")[0]
    return isinstance(value, FunctionType) and plugin != "" and package == plugin.partition(".")[0]


def _is_internal(new: Any, old: Any, label: str) -> bool:
    """Return whether torch itself changed an attribute, as the import of ``torch._dynamo`` does."""
    import torch

    if label.startswith(PREFIXES):
        return False
    file = Path(new.__code__.co_filename) if isinstance(new, FunctionType) else None
    if file is None:
        return False
    return inspect.unwrap(new) is old and file.is_relative_to(Path(torch.__file__).parent)

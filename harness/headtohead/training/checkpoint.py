"""Checkpoints: tensors and a JSON state in a safetensors file, without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from headtohead import files
from headtohead.errors import HeadToHeadError


def save(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and their JSON state to a file, atomically."""
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"state": json.dumps(dict(state))}
    # save_file of safetensors replaces the file that it is given, which is then neither locked nor synced.
    content = serialise(on_cpu, metadata)
    files.replace(path, lambda temporary: temporary.write_bytes(content))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file written by ``save``.

    Raises:
        HeadToHeadError: If the file is missing or damaged.
    """
    if not path.is_file():
        raise HeadToHeadError(f"'{path}' does not exist")
    try:
        with safe_open(path, framework="pt") as handle:
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
            state = json.loads((handle.metadata() or {}).get("state", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(state, dict):
        raise _damaged(path, "its state is not an object")
    return tensors, state


def load_weights(path: Path, expected: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return the final weights of a run; by default with any names, shapes and kinds of numbers.

    Raises:
        HeadToHeadError: If the file is missing or damaged, a weight is not finite, or names, shapes or kinds of numbers
            differ.
    """
    weights, _ = load(path)
    for name, values in weights.items():
        if not bool(torch.isfinite(values).all()):
            raise _damaged(path, f"{name} has values that are not finite")
    if expected is not None:
        require_shapes(expected, weights)
        for name, tensor in expected.items():
            if tensor.is_floating_point() != weights[name].is_floating_point():
                kind = "a floating-point" if tensor.is_floating_point() else "an integer"
                raise _damaged(path, f"{name} is {weights[name].dtype}, not {kind} tensor")
    return weights


def _damaged(path: Path, reason: object) -> HeadToHeadError:
    return HeadToHeadError(
        f"checkpoint '{path}' is damaged ({reason}); delete it and run the same command again"
    )


def require_shapes(expected: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    """Raise HeadToHeadError with all differences from the expected names and shapes."""
    faults = {
        "missing": sorted(set(expected) - set(stored)),
        "unknown": sorted(set(stored) - set(expected)),
        "wrong shape": [
            f"{name} {list(stored[name].shape)} for {list(expected[name].shape)}"
            for name in sorted(set(expected) & set(stored))
            if stored[name].shape != expected[name].shape
        ],
    }
    if any(faults.values()):
        listed = "; ".join(
            f"{fault}: {', '.join(names)}" for fault, names in faults.items() if names
        )
        raise HeadToHeadError(f"checkpoint does not match the configuration: {listed}")

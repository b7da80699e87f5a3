"""Reading of state dicts written by ``torch.save``: weights only, never pickled objects, which could run code."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from headtohead.errors import HeadToHeadError

SAVE = "save the weights only, with torch.save(model.state_dict(), 'weights.pt')"


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a state dict by name, on the CPU.

    Raises:
        HeadToHeadError: If the file is missing or damaged, or contains pickled objects or anything
            else than a state dict.
    """
    content = _load(path)
    if not isinstance(content, Mapping):
        raise HeadToHeadError(f"'{path}' contains a {type(content).__name__} instead of a state dict; {SAVE}")
    if not content:
        raise HeadToHeadError(f"'{path}' contains an empty state dict; {SAVE}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            problem = f"has type {type(value).__name__}" if isinstance(name, str) else "has a name that is not text"
            raise HeadToHeadError(f"'{path}' is not a state dict: entry {name!r} {problem}; {SAVE}")
    return dict(content)


def _load(path: Path) -> Any:
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "does not exist"
        raise HeadToHeadError(f"checkpoint '{path}' {reason}")
    try:
        _check_sums(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except HeadToHeadError:
        raise
    except PermissionError as error:
        raise HeadToHeadError(f"checkpoint '{path}' cannot be read: {error.strerror}") from error
    except Exception as error:  # torch.load has no exception type of its own for foreign or damaged files
        raise HeadToHeadError(_load_error(path, error)) from error


def _check_sums(path: Path) -> None:
    """Check the checksums of the archive, which torch.load ignores."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise HeadToHeadError(
                f"checkpoint '{path}' is damaged: the checksum of '{damaged}' is wrong; save or copy it again"
            )


def _load_error(path: Path, error: Exception) -> str:
    match = re.search(r"(?:GLOBAL|unsupported class) ([\w.]+)", str(error))
    if isinstance(error, UnpicklingError) and match:
        return f"'{path}' contains a pickled '{match[1]}', which is not loaded because it could run code; {SAVE}"
    return f"checkpoint '{path}' is damaged, or was not written by torch.save; {SAVE}"

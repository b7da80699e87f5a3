"""Reading a state dict that torch.save wrote: weights only, never a pickle that could run code."""

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

SAVE = "save the weights alone, with torch.save(model.state_dict(), 'weights.pt')"


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a state dict by name, on the CPU.

    Raises:
        HeadToHeadError: If the file is missing or damaged, holds pickled objects, or anything else
            than a state dict.
    """
    content = _load(path)
    if not isinstance(content, Mapping):
        raise HeadToHeadError(f"'{path}' holds a {type(content).__name__}, no state dict; {SAVE}")
    if not content:
        raise HeadToHeadError(f"'{path}' holds an empty state dict; {SAVE}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise HeadToHeadError(
                f"'{path}' is no state dict: its entry {name!r} is of type {type(value).__name__}, not a tensor; {SAVE}"
            )
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
    except Exception as error:  # torch has no error of its own for a file that is not one of its
        raise HeadToHeadError(_refusal(path, error)) from error


def _check_sums(path: Path) -> None:
    """Compare the checksums of the archive, which torch.load does not look at."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise HeadToHeadError(
                f"checkpoint '{path}' is damaged: '{damaged}' does not have its checksum; save or copy it again"
            )


def _refusal(path: Path, error: Exception) -> str:
    found = re.search(r"(?:GLOBAL|unsupported class) ([\w.]+)", str(error))
    if isinstance(error, UnpicklingError) and found:
        return f"'{path}' holds a pickled '{found[1]}', which is not loaded because it could run code; {SAVE}"
    return f"checkpoint '{path}' is damaged, or not written by torch.save; {SAVE}"

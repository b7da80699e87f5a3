"""Reading of state dicts written by ``torch.save``: weights only, never pickled objects, which could run code."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

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
    if path.is_dir():
        raise HeadToHeadError(f"checkpoint '{path}' is a folder")
    if not path.is_file():
        raise HeadToHeadError(f"checkpoint '{path}' does not exist")
    try:
        if zipfile.is_zipfile(path):  # torch.load ignores the checksums of the archive
            with zipfile.ZipFile(path) as archive:
                if damaged := archive.testzip():
                    raise zipfile.BadZipFile(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (
        Exception
    ) as error:  # torch.load has no exception type of its own for foreign or damaged files
        if match := re.search(r"(?:GLOBAL|unsupported class) ([\w.]+)", str(error)):
            raise HeadToHeadError(
                f"'{path}' contains a pickled '{match[1]}', which is not loaded because it could run code; {SAVE}"
            ) from error
        raise HeadToHeadError(
            f"checkpoint '{path}' is damaged, cannot be read, or was not written by torch.save; {SAVE}"
        ) from error
    if not _is_state_dict(content):
        raise HeadToHeadError(
            f"'{path}' does not contain tensors by name, as a state dict does; {SAVE}"
        )
    return dict(content)


def _is_state_dict(content: object) -> bool:
    """Return whether a value is a mapping from names to tensors, with at least one tensor."""
    if not isinstance(content, Mapping) or not content:
        return False
    return all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    )

"""``python -m catalogue [FOLDER]`` writes the catalogue of the built-in entries."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from catalogue.content import catalogue_entries
from catalogue.pages import catalogue_files, write_files
from headtohead.plugins.registry import current

if __name__ == "__main__":
    # The tensors are tiny: more threads only add overhead.
    torch.set_num_threads(1)
    built_in = [entry for entry in current().all() if entry.distribution == "headtohead"]
    write_files(
        Path(*(sys.argv[1:] or ["docs/reference/catalogue"])),
        catalogue_files(catalogue_entries(built_in)),
    )

"""``python -m catalogue [FOLDER] [--check] [--plugin PATH]...``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from catalogue.content import CatalogueEntry, catalogue_entries
from catalogue.pages import catalogue_files, stale_files, write_files
from headtohead.errors import HeadToHeadError
from headtohead.plugins.registry import plugin_files, use_files


def built_in_and(paths: Sequence[Path]) -> list[CatalogueEntry]:
    """Return the built-in entries and those of plugin files and folders."""
    registry = use_files(paths)
    modules = {str(file) for path in paths for file in plugin_files(path)}
    entries = [
        entry
        for entry in registry.all()
        if entry.distribution == "headtohead" or (entry.distribution == "file" and entry.module in modules)
    ]
    return catalogue_entries(registry, entries)


def main(arguments: Sequence[str]) -> int:
    """Write or check the catalogue; return 1 if it is not current, 2 for invalid input."""
    parser = argparse.ArgumentParser(prog="python -m catalogue")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("docs/reference/catalogue"))
    parser.add_argument("--check", action="store_true", help="only check that it is current")
    parser.add_argument(
        "--plugin",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="add the entries of a plugin file or folder",
    )
    options = parser.parse_args(arguments)
    # The tensors are tiny: more threads only add overhead.
    torch.set_num_threads(1)
    try:
        files = catalogue_files(built_in_and(options.plugin))
    except HeadToHeadError as error:
        print(f"catalogue: {error}", file=sys.stderr)
        return 2
    if not options.check:
        write_files(options.folder, files)
        return 0
    outdated = list(stale_files(options.folder, files))
    for name in outdated:
        print(f"{options.folder / name} is not current; run make docs", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

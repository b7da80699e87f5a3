"""``python -m headtohead.tools.catalogue [FOLDER] [--check] [--plugin FILE]...``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from headtohead.errors import HeadToHeadError
from headtohead.plugins.registry import use_files
from headtohead.tools.catalogue.content import Section, sections
from headtohead.tools.catalogue.writing import files_of, stale, write


def built_in_and(files: Sequence[Path]) -> list[Section]:
    """Return the sections of the built-in entries and of those in plugin files."""
    registry = use_files(files)
    modules = {str(path) for path in files}
    chosen = [
        one
        for one in registry.all()
        if one.distribution == "headtohead" or (one.distribution == "file" and one.module in modules)
    ]
    return sections(registry, chosen)


def main(arguments: Sequence[str]) -> int:
    """Write or check the catalogue; return 1 if it is not current, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m headtohead.tools.catalogue")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("docs/reference/catalogue"))
    parser.add_argument("--check", action="store_true", help="only check that it is current")
    parser.add_argument(
        "--plugin", type=Path, action="append", default=[], metavar="FILE", help="add the entries of a plugin file"
    )
    given = parser.parse_args(arguments)
    # Tensors are tiny: more threads only slow it down.
    torch.set_num_threads(1)
    try:
        files = files_of(built_in_and(given.plugin))
    except HeadToHeadError as error:
        print(f"headtohead.tools.catalogue: {error}", file=sys.stderr)
        return 2
    if not given.check:
        write(given.folder, files)
        return 0
    outdated = list(stale(given.folder, files))
    for name in outdated:
        print(f"{given.folder / name} is not current; run make docs", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

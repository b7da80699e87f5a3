"""``h2h clean``: remove what no experiment needs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headtohead.cli.options import runs_option
from headtohead_judge.output import echo, print_table

KINDS = ("archived", "superseded", "failed", "reproduced", "cache")


@click.command("clean")
@click.option(
    "--only", type=click.Choice(KINDS), multiple=True, help="Remove this kind only; repeatable."
)
@click.option("--yes", is_flag=True, help="Remove without asking.")
@runs_option
def command(only: tuple[str, ...], yes: bool, runs: Path) -> None:
    """List what no experiment of the runs folder needs, then ask whether to remove it.

    archived: runs that --fresh, --stale or --repair moved. superseded: runs that are in no plan any more.
    failed: runs that ended without a result. reproduced: runs of h2h reproduce. cache: prepared data, which are
    rebuilt when they are needed. Files that headtohead did not write stay.
    """
    from headtohead.data import cache_root
    from headtohead.execution.cleaning import find_leftovers, remove
    from headtohead.storage.run_files import disk_usage, show_size

    kinds = only or KINDS
    leftovers = [folder for folder in find_leftovers(runs, cache_root()) if folder.kind in kinds]
    if not leftovers:
        echo("nothing to remove")
        return
    total_size = 0
    rows = []
    for leftover in leftovers:
        size, _ = disk_usage(leftover.path)
        total_size += size
        rows.append([leftover.kind, show_size(size), str(leftover.path), leftover.reason])
    print_table(["kind", "size", "path", "reason"], rows, right=(1,))
    noun = "folder" if len(leftovers) == 1 else "folders"
    total = f"{len(leftovers)} {noun}, {show_size(total_size)}"
    if not yes and not sys.stdin.isatty():
        echo("", f"{total}; nothing was removed: add --yes")
        return
    if not yes and not click.confirm(f"\nremove {total}?"):
        echo("nothing was removed")
        return
    remove(leftovers)
    echo("", f"removed {total}")

"""``h2h notebooks``: the five notebooks compared on one page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import name_option, runs_option, seeds_option, set_option

if TYPE_CHECKING:
    from headtohead.tools.notebooks import Edition

EDITIONS = "experiments"
"""Folder of the experiment files that are run, inside that of the page."""


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    show_default="notebooks in the folder of reports",
    help="Folder of the page and of the reports that it links.",
)
@runs_option
@click.option(
    "--quick/--full",
    default=True,
    show_default=True,
    help="quick: fewer seeds, less training, two smaller models; full: as the files are.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Run this experiment; the page shows what else was run.")
@click.option(
    "--data-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="English-Spanish pairs of Tatoeba, which notebook 3 needs.",
)
@set_option
@seeds_option
@name_option
@click.option("--workers", type=click.IntRange(1), help="Stacks trained at the same time.")
@click.option("--retry", is_flag=True, help="Start runs again that failed.")
@click.option("--open/--no-open", "opened", default=False, show_default=True, help="Show the page in a browser.")
def command(
    out: Path | None,
    runs_root: Path,
    quick: bool,
    only: tuple[str, ...],
    data_file: Path | None,
    overrides: tuple[str, ...],
    seeds: int | None,
    label: str | None,
    workers: int | None,
    retry: bool,
    opened: bool,
) -> None:
    """Run the experiments on the five notebooks and write one page about them.

    For each notebook: what it chose, what it scored, what its text prints, and what each of its
    pitfalls did, with numbers. What is done is not run again, and an interrupted call goes on where
    it was. Nothing is downloaded, and nothing is shipped to MLflow; h2h sync does that.

    The last line is the path of the page. Exit code 1 if a run failed.
    """
    from headtohead.config.project import reports_folder
    from headtohead.data import cache_root
    from headtohead.errors import HeadToHeadError
    from headtohead.plugins.registry import current
    from headtohead.tools.notebooks import editions, write_page

    if data_file is not None and not data_file.is_file():
        raise HeadToHeadError(f"--data-file '{data_file}' does not exist; name a file of pairs")
    out = out or reports_folder(runs_root) / "notebooks"
    made = editions(
        quick=quick, data_file=data_file, overrides=overrides, seeds=seeds, label=label, folder=out / EDITIONS
    )
    complete = True
    for one in list(_chosen(made, only)):
        complete &= _run(one, runs_root, out, workers, retry)
    click.echo("measuring the pitfalls of the notebooks")
    page = write_page(
        made,
        runs=runs_root,
        out=out,
        registry=current(),
        cache=cache_root(),
        data_file=data_file,
        command="h2h " + " ".join(sys.argv[1:]),
        quick=quick,
    )
    if opened:
        click.launch(str(page))
    click.echo(page)
    sys.exit(0 if complete else 1)


def _chosen(made: tuple[Edition, ...], only: tuple[str, ...]) -> Iterator[Edition]:
    from headtohead.errors import HeadToHeadError, nearest

    names = [one.experiment.name for one in made]
    for name in only:
        if name not in names:
            raise HeadToHeadError(f"unknown experiment '{name}'{nearest(name, names)}")
    yield from (one for one in made if not only or one.experiment.name in only)


def _run(edition: Edition, runs: Path, out: Path, workers: int | None, retry: bool) -> bool:
    """Run one experiment, unless it is done; return whether every run has a result."""
    from headtohead import api
    from headtohead.cli.progress import make_watcher
    from headtohead.tools.notebooks import is_complete

    name = edition.experiment.name
    if edition.reason is not None:
        click.echo(f"{name}: not run: {edition.reason}")
        return True
    for recipe, reason in edition.omitted.items():
        click.echo(f"{name}: without {recipe}: not run: {reason}")
    file = edition.write(out / EDITIONS)
    if is_complete(edition, runs, out):
        click.echo(f"{name}: done")
        return True
    click.echo(f"{name}: {edition.experiment.question}")
    said: list[str] = []
    try:
        result = api.run(
            file,
            overrides=edition.overrides,
            seeds=edition.seeds,
            runs=runs,
            reports=out,
            workers=workers,
            retry=retry,
            tracking=False,
            watcher=make_watcher(),
            log=said.append,
        )
    except KeyboardInterrupt:
        click.echo(f"{name}: {said[-1] if said else 'interrupted'}", err=True)
        raise
    if not result.complete:
        for line in said:
            click.echo(f"{name}: {line}", err=True)
    return result.complete

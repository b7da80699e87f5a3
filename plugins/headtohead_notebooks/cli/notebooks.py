"""``h2h notebooks``: compare the five notebooks on a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import runs_option
from headtohead.errors import Interrupted
from headtohead_judge.output import echo

if TYPE_CHECKING:
    from headtohead_notebooks.page import Edition

EDITIONS = "experiments"
"""Folder of the experiment files, inside the folder of the page."""


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    show_default="notebooks in the folder of reports",
    help="Folder of the page and of the linked reports.",
)
@runs_option
@click.option(
    "--quick/--full",
    default=True,
    show_default=True,
    help="quick: fewer seeds, shorter training, two smaller models; full: the files unchanged.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run only this experiment; the page also shows earlier results of the others.",
)
@click.option(
    "--data-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="English-Spanish pairs of Tatoeba, required by notebook 3.",
)
def command(
    out: Path | None, runs: Path, quick: bool, only: tuple[str, ...], data_file: Path | None
) -> None:
    """Run the experiments on the five notebooks and write a page with the results.

    For each notebook, the page shows its settings, its scores, the numbers printed in its text, and the measured
    effect of each of its pitfalls. Finished runs are not repeated, and an interrupted command resumes.
    Nothing is downloaded, and nothing is logged to MLflow; use h2h sync for that.

    The last line of the output is the path of the page. Exit code 1 if a run failed.
    """
    from headtohead.config.project import reports_folder
    from headtohead.data import cache_root
    from headtohead.errors import HeadToHeadError, nearest
    from headtohead_notebooks.page import editions, write_page

    if data_file is not None and not data_file.is_file():
        raise HeadToHeadError(
            f"--data-file '{data_file}' does not exist; pass a file of sentence pairs"
        )
    if out is None:
        out = reports_folder(runs) / "notebooks"
    all_editions = editions(quick=quick, data_file=data_file, folder=out / EDITIONS)
    names = [edition.experiment.name for edition in all_editions]
    for unknown in set(only) - set(names):
        raise HeadToHeadError(f"unknown experiment '{unknown}'{nearest(unknown, names)}")
    complete = True
    for edition in all_editions:
        if not only or edition.experiment.name in only:
            complete &= _run(edition, runs, out)
    echo("measuring the pitfalls of the notebooks")
    arguments = " ".join(sys.argv[1:])
    page = write_page(
        all_editions,
        runs=runs,
        out=out,
        cache=cache_root(),
        data_file=data_file,
        command=f"h2h {arguments}",
        quick=quick,
    )
    echo(page)
    sys.exit(0 if complete else 1)


def _run(edition: Edition, runs: Path, out: Path) -> bool:
    """Run what is missing of an experiment; return whether every run has a result."""
    from headtohead import api
    from headtohead.files import write_text

    name = edition.experiment.name
    for recipe, reason in edition.omitted.items():
        echo(f"{name}: without {recipe}: not run: {reason}")
    file = out / EDITIONS / f"{edition.name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, edition.text)
    echo(f"{name}: {edition.experiment.question}")
    messages: list[str] = []
    try:
        result = api.run(file, runs=runs, reports=out, tracking=False, log=messages.append)
    except KeyboardInterrupt:
        last_message = messages[-1] if messages else "interrupted"
        echo(f"{name}: {last_message}", err=True)
        raise Interrupted from None
    if not result.complete:
        for line in messages:
            echo(f"{name}: {line}", err=True)
    return result.complete

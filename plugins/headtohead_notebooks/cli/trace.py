"""``h2h trace``: every step of a forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import (
    format_option,
    load_plugins,
    plugin_option,
    runs_option,
    set_option,
)
from headtohead_judge.output import echo, echo_text

if TYPE_CHECKING:
    from headtohead_notebooks.trace import Trace


@click.command()
@click.argument("name", metavar="RECIPE|RUN")
@click.argument("source", metavar="SENTENCE")
@click.option(
    "--target",
    metavar="TEXT",
    help="Decoder input; default: the reference of SENTENCE in the corpus, else the model's own translation.",
)
@format_option("html: a self-contained page; npz: full arrays by name.", "html", "npz")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to FILE instead of standard output.",
)
@click.option(
    "--only", metavar="PART", help="Show only this part, for example encoder.0.self, or this step."
)
@click.option(
    "--seed",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Seed of a recipe's initial weights.",
)
@set_option("the recipe", "model.d_model=8")
@runs_option
@plugin_option
def command(  # noqa: PLR0913 - a click callback has a parameter for each option
    name: str,
    source: str,
    target: str | None,
    form: str,
    out: Path | None,
    only: str | None,
    seed: int,
    overrides: tuple[str, ...],
    runs: Path,
) -> None:
    """Show every step of a forward pass over SENTENCE, with name, shape and formula.

    The model is a RUN, or a RECIPE at initialisation. Steps range from ids and embeddings through the queries,
    keys, values, scores and weights of every head to the predicted words.
    """
    from headtohead.errors import HeadToHeadError
    from headtohead.files import writing
    from headtohead_notebooks.trace.model_source import find_model

    if form == "npz" and out is None:
        raise HeadToHeadError("--format npz requires --out FILE")
    load_plugins()
    model = find_model(name, runs=runs, seed=seed, overrides=overrides)
    trace = model.trace(source, target)
    if only is not None:
        trace = trace.only(only)
    if out is None:
        echo_text(_text(trace, form))
        return
    with writing(out, "choose another file with --out"):
        if form == "npz":
            trace.write_arrays(out)
        else:
            out.write_text(_text(trace, form), encoding="utf-8")
    echo(out)


def _text(trace: Trace, form: str) -> str:
    if form == "html":
        from headtohead_notebooks.trace.html import as_html

        return as_html(trace)
    from headtohead_notebooks.trace.text import as_text

    return as_text(trace)

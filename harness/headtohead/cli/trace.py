"""``h2h trace``: every step of one forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import plugin_option, runs_option

if TYPE_CHECKING:
    from headtohead.tools.trace import Trace


@click.command()
@click.argument("name", metavar="RECIPE|RUN")
@click.argument("source", metavar="SENTENCE")
@click.option(
    "--target",
    metavar="TEXT",
    help="What the decoder reads; default: the sentence's translation in the corpus, "
    "else what the model itself writes.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "html", "npz"]),
    default="text",
    show_default=True,
    help="html: one page to teach from; npz: full arrays by name.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write there instead of to the screen.",
)
@click.option("--only", metavar="PART", help="One part of it, for example encoder.0.self, or one step.")
@click.option("--seed", type=click.IntRange(min=1), default=1, show_default=True, help="Of a recipe's weights.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a field of a recipe, for example model.d_model=8.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    show_default="~/.cache/headtohead",
    envvar="H2H_CACHE",
    help="Folder of downloads and prepared data.",
)
@runs_option
@plugin_option
def command(
    name: str,
    source: str,
    target: str | None,
    form: str,
    out: Path | None,
    only: str | None,
    seed: int,
    overrides: tuple[str, ...],
    cache: Path | None,
    runs_root: Path,
    plugin_files: tuple[Path, ...],
) -> None:
    """Show every step of one forward pass over SENTENCE, named, shaped, with its formula.

    Of a RECIPE, with its data and its weights as they are drawn; or of a RUN. From ids and
    embeddings over queries, keys, values, scores and weights of every head to the chosen words.
    """
    from headtohead.data import cache_root
    from headtohead.errors import HeadToHeadError
    from headtohead.plugins.registry import use_files
    from headtohead.tools.trace.model_source import find_model

    if form == "npz" and out is None:
        raise HeadToHeadError("npz is not for the screen; give --out FILE")
    registry = use_files(plugin_files)
    model = find_model(name, registry, runs_root, cache or cache_root(), seed, overrides)
    trace = model.trace(source, target)
    if only is not None:
        trace = trace.only(only)
    if out is None:
        click.echo(_text(trace, form), nl=False)
        return
    try:
        _write(trace, form, out)
    except OSError as error:
        raise HeadToHeadError(f"'{out}' cannot be written: {error.strerror}") from error
    click.echo(out)


def _text(trace: Trace, form: str) -> str:
    if form == "html":
        from headtohead.tools.trace.html import as_html

        return as_html(trace)
    from headtohead.tools.trace.text import as_text

    return as_text(trace)


def _write(trace: Trace, form: str, out: Path) -> None:
    if form == "npz":
        trace.write_arrays(out)
    else:
        out.write_text(_text(trace, form), encoding="utf-8")

"""``h2h translate``: sentences in, a trained run's translations out."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headtohead.cli.options import plugin_option, runs_option


@click.command("translate")
@click.argument("run")
@click.argument("text", nargs=-1)
@runs_option
@plugin_option
def command(
    run: str, text: tuple[str, ...], runs_root: Path, plugin_files: tuple[Path, ...]
) -> None:
    """Translate TEXT with RUN, a run's directory or the beginning of its name.

    Without TEXT, sentences are read from standard input, one a line.
    """
    from headtohead import plugins
    from headtohead.errors import HeadToHeadError
    from headtohead.runs.loaded import load

    plugins.use_files(plugin_files)
    sentences = list(text) or [line.rstrip("\n") for line in sys.stdin]
    empty = [number for number, sentence in enumerate(sentences, 1) if not sentence.strip()]
    if empty or not sentences:
        where = f"sentence {empty[0]} is empty" if empty else "no sentence was given"
        raise HeadToHeadError(f'{where}; type h2h translate {run} "I love you"')
    loaded = load(run, runs_root)
    translations = loaded.translate(sentences)
    if loaded.faults:
        click.echo(f"note: faults of this run: {', '.join(loaded.faults)}", err=True)
    for sentence, translation in zip(sentences, translations, strict=True):
        unknown = loaded.unknown_words(sentence)
        if unknown:
            click.echo(f"note: not in the vocabulary: {', '.join(unknown)}", err=True)
        click.echo(translation)

"""``h2h generate``: translate sentences, or continue a text, with a trained run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from headtohead.cli.options import (
    FiniteRange,
    load_plugins,
    plugin_option,
    run_argument,
    runs_option,
)
from headtohead_judge.output import echo


@click.command("generate")
@run_argument
@click.argument("text", nargs=-1)
@click.option("--prompt", multiple=True, help="As TEXT; can be repeated.")
@click.option(
    "--tokens", type=click.IntRange(1, 100_000), help="Tokens of a continuation.  [default: 200]"
)
@click.option(
    "--temperature",
    type=FiniteRange(0, 100),
    help="Divisor of the logits of a continuation; 0 takes the most probable token.  [default: 1]",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of a continuation.  [default: 1]"
)
@runs_option
@plugin_option
def command(
    run: str,
    text: tuple[str, ...],
    prompt: tuple[str, ...],
    tokens: int | None,
    temperature: float | None,
    seed: int | None,
    runs: Path,
) -> None:
    """Translate TEXT with RUN, a run's directory or a prefix of its name.

    A run on data without sources, such as a text file, continues TEXT. A run on sequences with labels prints the
    labels of the words in brackets, or of the last word. Without TEXT, sentences are read from standard input, one
    sentence per line.
    """
    from headtohead.errors import HeadToHeadError
    from headtohead.execution.loaded import load
    from headtohead.storage.experiment import examples_of

    load_plugins()
    sentences = [*text, *prompt] or [line.rstrip("\n") for line in sys.stdin]
    loaded = load(run, runs=runs)
    examples = examples_of(loaded.record.data)
    is_text = examples == "blocks"
    empty = [
        number for number, own in enumerate(sentences, 1) if not (own if is_text else own.strip())
    ]
    if empty or not sentences:
        name, example = (
            ("prompt", "--prompt 'Once upon a time'") if is_text else ("sentence", '"I love you"')
        )
        problem = f"{name} {empty[0]} is empty" if empty else f"no {name} was given"
        raise HeadToHeadError(f"{problem}; run h2h generate {run} {example}")
    for sentence in sentences:
        if unknown := loaded.unknown_words(sentence):
            echo(f"note: not in the vocabulary: {', '.join(unknown)}", err=True)
    if examples == "sequences":
        if any(value is not None for value in (tokens, temperature, seed)):
            raise HeadToHeadError(
                "this run labels words of a sequence; leave out --tokens, --temperature, --seed"
            )
        for sentence in sentences:
            echo(loaded.label(sentence))
        return
    sampling = {"temperature": temperature, "seed": seed}
    given: dict[str, Any] = {name: value for name, value in sampling.items() if value is not None}
    if given or tokens is not None or is_text:
        for sentence in sentences:
            for line in loaded.continue_text(sentence, tokens or 200, **given).split("\n"):
                echo(line)
        return
    translations = loaded.translate(sentences)
    if loaded.pitfalls:
        echo(f"note: pitfalls of this run: {', '.join(loaded.pitfalls)}", err=True)
    for translation in translations:
        echo(translation)

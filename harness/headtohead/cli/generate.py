"""``h2h generate``: translate sentences, or continue a text, with a trained run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headtohead.cli.options import (
    FiniteRange,
    load_plugins,
    plugin_option,
    run_argument,
    runs_option,
)
from headtohead_judge.output import echo

if TYPE_CHECKING:
    from headtohead.execution.loaded import LoadedRun

DEFAULT_TOKENS = 200


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
    _refuse_empty(sentences, run, is_text)
    for sentence in sentences:
        unknown = loaded.unknown_words(sentence)
        if unknown:
            echo(f"note: not in the vocabulary: {', '.join(unknown)}", err=True)
    options: dict[str, Any] = {"tokens": tokens, "temperature": temperature, "seed": seed}
    chosen = {name: value for name, value in options.items() if value is not None}
    if examples == "sequences":
        if chosen:
            raise HeadToHeadError(
                "this run labels words of a sequence; leave out --tokens, --temperature, --seed"
            )
        for sentence in sentences:
            echo(loaded.label(sentence))
    elif chosen or is_text:
        _continue(loaded, sentences, chosen)
    else:
        _translate(loaded, sentences)


def _continue(loaded: LoadedRun, sentences: Sequence[str], options: Mapping[str, Any]) -> None:
    """Print a continuation of each sentence; options as for ``continue_text``."""
    for sentence in sentences:
        continuation = loaded.continue_text(sentence, **{"tokens": DEFAULT_TOKENS, **options})
        echo(*continuation.split("\n"))


def _translate(loaded: LoadedRun, sentences: Sequence[str]) -> None:
    translations = loaded.translate(sentences)
    if loaded.pitfalls:
        echo(f"note: pitfalls of this run: {', '.join(loaded.pitfalls)}", err=True)
    echo(*translations)


def _refuse_empty(sentences: Sequence[str], run: str, is_text: bool) -> None:
    """Raise an error if there is no sentence, or an empty one; white space is a prompt of a text."""
    from headtohead.errors import HeadToHeadError

    name = "prompt" if is_text else "sentence"
    example = "--prompt 'Once upon a time'" if is_text else '"I love you"'
    if not sentences:
        raise HeadToHeadError(f"no {name} was given; run h2h generate {run} {example}")
    for number, sentence in enumerate(sentences, 1):
        content = sentence if is_text else sentence.strip()
        if not content:
            raise HeadToHeadError(f"{name} {number} is empty; run h2h generate {run} {example}")

"""The command ``judge``, of the scripts ``h2h`` and ``headtohead-judge``: its options.

`headtohead_judge.program` does the work; it is imported when the command runs, so that ``--help`` is fast.
"""

from __future__ import annotations

import gc
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from headtohead_judge.request import DIRECTIONS, SIZES, Request

EXIT_CODES = """
\b
verdict of a variant  exit code
in --accept           0
worse, with any size  1
any other             3

\b
decision of --ledger  exit code
kept                  0
worse                 1
not kept              3
needs more seeds      4
"""


def _print_skill(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    """Print SKILL.md and end the command, if the option is given."""
    if not is_given or context.resilient_parsing:
        return
    from headtohead_judge.output import echo_text

    text = files("headtohead_judge").joinpath("SKILL.md").read_text(encoding="utf-8")
    echo_text(text)
    context.exit()


@click.command(epilog=EXIT_CODES)
@click.argument("source", metavar="[FILE]", required=False)
@click.option(
    "--baseline", metavar="VARIANT", help="The variant with which the others are compared."
)
@click.option(
    "--candidate",
    "candidates",
    metavar="VARIANT",
    multiple=True,
    help="Judge only this variant; repeatable.",
)
@click.option("--metric", metavar="NAME", help="The metric; not needed if there is a single one.")
@click.option(
    "--margin",
    type=float,
    metavar="X",
    help="The smallest difference that matters, for verdicts with a size and of equivalence.",
)
@click.option(
    "--higher-is-better/--lower-is-better",
    default=None,
    help="Direction of the metric, if its name does not determine it.",
)
@click.option("--unpaired", is_flag=True, help="Compare separate seeds (Welch's t-test).")
@click.option(
    "--looks",
    type=click.IntRange(min=1, max=50),
    metavar="N",
    help="Number of times that the study is judged, at equal intervals up to --at-most seeds.",
)
@click.option(
    "--at-most",
    type=click.IntRange(min=3, max=1000),
    default=20,
    show_default=True,
    metavar="SEEDS",
    help="Number of seeds of the last look.",
)
@click.option(
    "--accept",
    type=click.Choice([*DIRECTIONS, *SIZES]),
    multiple=True,
    default=("better",),
    show_default=True,
    help="A verdict for exit code 0, such as better (with any size) or equivalent; repeatable.",
)
@click.option(
    "--variant",
    "variant_columns",
    metavar="COLUMN",
    multiple=True,
    default=("variant",),
    show_default=True,
    help="Column of the variant; repeatable.",
)
@click.option(
    "--seed",
    "seed_column",
    metavar="COLUMN",
    default="seed",
    show_default=True,
    help="Column of the seed.",
)
@click.option(
    "--step",
    "step_column",
    metavar="COLUMN",
    help="Column of the step, if a run has a row per evaluation: the last row of a run counts.",
)
@click.option(
    "--sd",
    type=float,
    metavar="X",
    help="Standard deviation between seeds, for variants with a single seed: the error then states how many a decision "
    "needs.",
)
@click.option("--experiment", metavar="NAME", help="Experiment of the MLflow store FILE.")
@click.option(
    "--answer",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the answer as JSON.",
)
@click.option(
    "--ledger",
    "ledger_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="LEDGER",
    help="Decide on one candidate against the incumbent, both with at least six seeds trained together, and append "
    "the decision to this JSON Lines file.",
)
@click.option(
    "--status",
    is_flag=True,
    help="Print the incumbent of LEDGER and what the next decision needs; with FILE, which of its runs are missing.",
)
@click.option(
    "--same",
    is_flag=True,
    help="Are the runs the same within --margin? Exit code 0 if every difference is inside it, 1 if one is larger, "
    "else 3.",
)
@click.option(
    "--at",
    "steps",
    type=float,
    metavar="STEP",
    multiple=True,
    help="With --same and --step: compare the curves at this step; repeatable.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="json: the answer as JSON.",
)
@click.option(
    "--skill",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_skill,
    help="Print SKILL.md, the instructions for coding agents, and exit.",
)
def command(**options: Any) -> None:
    """Judge the scores in FILE: is each variant better than the baseline, or is the difference noise?

    FILE is a CSV, TSV, JSON Lines or Parquet table with a row per variant and seed, an export of Weights & Biases or
    Trackio, the URI of an MLflow store, a folder of VARIANT/SEED/metrics.json, or the results of autoresearch,
    pi-autoresearch, nanochat, modded-nanogpt or parameter-golf. Every difference has one interval; the intervals of
    all variants together have 95 %. A verdict is better, worse or no difference shown; with --margin also
    equivalent, and better or worse by more or by less than the margin.

    Exit code: 0 if every variant has 0 in the first table below; 1 if every variant, or with --candidate one of
    them, has 1; else 3. Invalid input gives 2.
    """
    from headtohead_judge.program import run

    source_of_at_most = click.get_current_context().get_parameter_source("at_most")
    is_at_most_chosen = source_of_at_most is ParameterSource.COMMANDLINE
    request = Request(**options, is_at_most_chosen=is_at_most_chosen)
    gc.freeze()  # else collections visit all objects of the imported libraries, which takes as long as the statistics
    try:
        code = run(request)
    finally:
        gc.unfreeze()
    sys.exit(code)

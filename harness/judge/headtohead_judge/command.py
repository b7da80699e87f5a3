"""The command ``judge``, of the scripts ``h2h`` and ``headtohead-judge``: its options.

`headtohead_judge.program` does the work; it is imported when the command runs, so that ``--help`` is fast.
"""

from __future__ import annotations

import gc
import sys
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
"""


@click.command(epilog=EXIT_CODES)
@click.argument("source", metavar="FILE", required=False)
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
    help="Standard deviation between seeds: the error about a single seed then has the number that a decision needs.",
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
    help="Print the incumbent of LEDGER and the seeds that a decision needs.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="json: the answer as JSON.",
)
def command(**options: Any) -> None:
    """Judge the scores in FILE: is each variant better than the baseline, or is the difference noise?

    FILE is a CSV, TSV, JSON Lines or Parquet table with a row per variant and seed, such as the CSV of a W&B runs
    table or the results.csv of a report, the URI of an MLflow store, the results.tsv of autoresearch, or a folder of
    submissions to parameter-golf or of logs of modded-nanogpt. Every difference has one interval; the intervals of
    all variants together have 95 %. A verdict is better, worse or no difference shown; with --margin also
    equivalent, and better or worse by more or by less than the margin. The command exits with 1 if a variant has
    exit code 1, else with the largest code; invalid input gives 2.
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

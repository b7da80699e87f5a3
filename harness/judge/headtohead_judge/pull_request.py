"""Judge the scores of a pull request against those of its base branch: ``python -m headtohead_judge.pull_request``.

The file with the scores has a row per seed. That of the working tree is compared with that of the base branch, which
git shows. The GitHub Action of headtohead calls this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pandas as pd

from headtohead_judge.cells import single_spaced
from headtohead_judge.child import run_program
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.escaping import markdown_escape
from headtohead_judge.listing import listed
from headtohead_judge.output import echo, echo_text
from headtohead_judge.score_files import read_score_file

NAME = "pull request"
"""The variant of the working tree."""

BAD_INPUT = 2

TITLE = "## Scores of the pull request"


@click.command()
@click.argument("scores", type=click.Path(path_type=Path))
@click.option("--baseline-ref", required=True, help="Branch or commit with the scores to compare.")
@click.option("--metric", default="", help="The metric; not needed if there is a single one.")
def command(scores: Path, baseline_ref: str, metric: str) -> None:
    """Judge SCORES against the same file of a branch; print the table as Markdown, with the exit code of judge."""
    try:
        text, code = judged(scores, baseline_ref, metric)
    except HeadToHeadError as error:
        echo_text(f"{TITLE}\n\n{markdown_escape(error)}\n")
        echo(f"headtohead-judge: {error}", err=True)
        sys.exit(BAD_INPUT)
    echo_text(f"{TITLE}\n\n{text}\n")
    sys.exit(code)


def judged(scores: Path, baseline_ref: str, metric: str) -> tuple[str, int]:
    """Return the Markdown text about the scores of the working tree, and the exit code of ``headtohead-judge``.

    Raises:
        HeadToHeadError: If git has no such branch, or a file has no scores or those of several variants.
    """
    earlier = _shown(scores, baseline_ref)
    if earlier is None:
        text = f"{baseline_ref} has no {scores}: there are no scores to compare with."
        return markdown_escape(text), 0
    if scores.is_file() and scores.read_bytes() == earlier:
        text = f"{scores} is the same on {baseline_ref}: there are no new scores."
        return markdown_escape(text), 0
    with tempfile.TemporaryDirectory() as folder:
        base_file = Path(folder, f"base{scores.suffix}")
        base_file.write_bytes(earlier)
        base = _of_one_variant(
            read_score_file(base_file), baseline_ref, f"{scores} of {baseline_ref}"
        )
        new = _of_one_variant(read_score_file(scores), NAME, str(scores))
        both = Path(folder, "scores.csv")
        pd.concat([base, new]).to_csv(both, index=False)
        arguments = [str(both), "--baseline", baseline_ref, "--format", "markdown"]
        if metric:
            arguments += ["--metric", metric]
        if _seeds(base) != _seeds(new):
            arguments.append("--unpaired")
        done = run_program([sys.executable, "-m", "headtohead_judge", *arguments])
    if done.returncode not in (0, 1, 3):
        raise HeadToHeadError(done.stderr.strip().removeprefix("headtohead-judge: "))
    remarks = [f"- {markdown_escape(line)}" for line in done.stderr.splitlines()]
    return "\n".join([done.stdout, *remarks]), done.returncode


def _shown(scores: Path, ref: str) -> bytes | None:
    """Return the content of a file on a branch; None if the branch does not have it.

    Raises:
        HeadToHeadError: If git has no such branch or commit.
    """
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if commit.returncode:
        raise HeadToHeadError(
            f"git has no branch or commit '{ref}' here; in a workflow, use actions/checkout with fetch-depth: 0"
        )
    place = f"{commit.stdout.decode().strip()}:./{os.path.relpath(scores)}"
    shown = _git("show", place)
    return None if shown.returncode else shown.stdout


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in the working directory.

    Raises:
        HeadToHeadError: If git is not installed.
    """
    try:
        return subprocess.run(["git", *arguments], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise HeadToHeadError("git is not installed; it shows the scores of the branch") from error


def _of_one_variant(table: pd.DataFrame, name: str, where: str) -> pd.DataFrame:
    """Return a table with the ``name`` as its variant.

    Raises:
        HeadToHeadError: If the table has several variants.
    """
    if "variant" in table.columns:
        names = sorted({single_spaced(str(value)) for value in table["variant"]})
        if len(names) > 1:
            raise HeadToHeadError(
                f"{where} has several variants: {listed(names)}; keep the rows of the code of the branch"
            )
    return table.assign(variant=name)


def _seeds(table: pd.DataFrame) -> set[str]:
    """Return the seeds of a table; none without a column for them, which is an error of the command."""
    if "seed" not in table.columns:
        return set()
    return {single_spaced(str(seed)) for seed in table["seed"]}


if __name__ == "__main__":
    command()

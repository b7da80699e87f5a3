"""``--status`` of a ledger: what the next decision needs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from headtohead_judge.command import command
from headtohead_judge.errors import HeadToHeadError

ROOT = Path(__file__).parents[2]


def write(folder: Path, name: str, sides: dict[str, range]) -> str:
    """Write scores of some seeds of each variant; ``gate`` has a smaller loss. Return the path."""
    generator = np.random.default_rng(len(name))
    lines = ["variant,seed,loss"]
    for variant, seeds in sides.items():
        mean = 2.3 if variant == "main" else 2.2
        lines += [f"{variant},{seed},{generator.normal(mean, 0.01)!r}" for seed in seeds]
    file = folder / name
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def call(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--ledger", str(folder / "ledger.jsonl")])


def next_of(folder: Path, *arguments: str) -> str:
    done = call(folder, *arguments, "--status")
    assert done.exit_code == 0, done.output
    last = done.stdout.splitlines()[-1]
    answer = json.loads(call(folder, *arguments, "--status", "--format", "json").stdout)
    assert last == f"next: {answer['next']}"
    return last


NUMBER = "6 seeds or more (20 for an improvement of 1 standard deviation)"


def test_a_ledger_that_does_not_exist_is_a_warning(tmp_path: Path) -> None:
    done = call(tmp_path, "--status")
    assert done.stderr == (
        f"warning: {tmp_path / 'ledger.jsonl'} does not exist; the first decision creates it\n"
    )
    six = write(tmp_path, "six.csv", {"main": range(6), "gate": range(6)})
    assert call(tmp_path, six, "--baseline", "main").exit_code == 0
    assert call(tmp_path, "--status").stderr == ""


def test_the_status_states_the_missing_runs_until_the_decision(tmp_path: Path) -> None:
    assert next_of(tmp_path) == (
        f"next: run the baseline and a candidate, {NUMBER} of both, side by side; name the baseline with --baseline"
    )
    three = write(tmp_path, "three.csv", {"main": range(3), "gate": range(3)})
    first = ("--baseline", "main")
    assert next_of(tmp_path, three, *first) == (
        "next: run 3 more seeds of both gate and main, side by side"
    )
    undecided = call(tmp_path, three, *first, "--format", "json")
    assert (undecided.exit_code, undecided.stderr.startswith("no decision: ")) == (4, True)
    answer = json.loads(undecided.stdout)
    assert (answer["decision"], answer["exit_code"], answer["more_seeds"]) == (None, 4, 3)
    done = call(tmp_path, three, *first)
    assert (done.exit_code, done.stdout) == (
        4,
        "next: run 3 more seeds of both gate and main, side by side\n",
    )
    six = write(tmp_path, "six.csv", {"main": range(6), "gate": range(6)})
    assert next_of(tmp_path, six, *first) == (
        "next: decide on gate, with this command without --status"
    )
    assert call(tmp_path, six, *first).exit_code == 0
    later = NUMBER.replace("20", "18")
    assert next_of(tmp_path) == (
        f"next: run gate and a candidate, {later} of both, side by side; new seeds begin with 6"
    )
    for baseline in ((), first):
        assert next_of(tmp_path, six, *baseline) == (
            f"next: gate is already decided: decision 1, kept; run a candidate beside gate, {later} of both"
        )
    status = json.loads(call(tmp_path, "--status", "--format", "json").stdout)
    assert status["next_seeds"] == [str(seed) for seed in range(6, 24)]


def test_stored_scores_of_the_incumbent_and_seeds_of_one_side_do_not_count(tmp_path: Path) -> None:
    six = write(tmp_path, "six.csv", {"main": range(6), "gate": range(6)})
    assert call(tmp_path, six, "--baseline", "main").exit_code == 0
    text = Path(six).read_text()
    stored = [line for line in text.splitlines() if not line.startswith("main")]
    extra = [f"smear,{seed},{2.2 + seed / 1000}" for seed in range(6)]
    (tmp_path / "stored.csv").write_text("\n".join([*stored, *extra]) + "\n")
    assert next_of(tmp_path, str(tmp_path / "stored.csv")) == (
        "next: run 6 more seeds of both smear and gate, side by side"
    )
    uneven = write(tmp_path, "uneven.csv", {"gate": range(10, 13), "smear": range(10, 15)})
    assert next_of(tmp_path, uneven) == (
        "next: run seeds 13, 14 of gate, beside the runs of the other side; then 1 more seed of both"
    )


def test_too_few_seeds_of_several_candidates_are_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, "three.csv", {"main": range(3), "gate": range(3), "wide": range(3)})
    done = call(tmp_path, file, "--baseline", "main")
    assert isinstance(done.exception, HeadToHeadError)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_decision_explains_its_p_and_a_better_that_is_not_kept(tmp_path: Path) -> None:
    noise = np.array([0.01, -0.01, 0.02, -0.02, 0.03, -0.03])

    def decide(candidate: str, first: int, effect: float) -> list[str]:
        rows = [f"main,{first + seed},2.300000" for seed in range(6)]
        rows += [f"{candidate},{first + seed},{2.3 - effect + x}" for seed, x in enumerate(noise)]
        file = tmp_path / "scores.csv"
        file.write_text("\n".join(["variant,seed,loss", *rows]) + "\n")
        return call(tmp_path, str(file), "--baseline", "main").stdout.splitlines()

    *_, decided, _, test = decide("gate", 1, 0.0)
    assert decided == (
        "decision 1: gate is not kept, as the one-sided p = 0.5 is above the level 0.0013 of the chain; "
        "the incumbent is main"
    )
    assert test == (
        "p: one-sided paired t-test, 5 degrees of freedom, standard deviation 0.0237 of these differences alone"
    )
    *_, decided, _, test = decide("wide", 11, 0.03)
    assert decided.endswith(
        "; better is the verdict of a two-sided test of this table alone, at 5 %"
    )
    assert test == (
        "p: one-sided paired t-test, 10 degrees of freedom, standard deviation 0.0237 (that of these differences, "
        "0.0237 with 5 degrees, moderated towards earlier decisions)"
    )


def without_numbers(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "N", text)


def test_the_status_in_the_guide_is_the_printed_one_but_for_its_numbers(tmp_path: Path) -> None:
    six = write(tmp_path, "six.csv", {"main": range(6), "gate": range(6)})
    assert call(tmp_path, six, "--baseline", "main").exit_code == 0
    printed = call(tmp_path, "--status").stdout
    guide = (ROOT / "docs" / "how-to" / "judge.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(incumbent: .*?)```", guide, re.DOTALL)
    assert without_numbers(printed) == without_numbers(shown)


@pytest.mark.parametrize(
    ("sides", "arguments", "message"),
    [
        ({"main": range(3), "gate": range(3)}, (), "requires --baseline VARIANT"),
        (
            {"main": range(3), "gate": range(3), "wide": range(3)},
            ("--baseline", "main"),
            "choose one with --candidate: gate, wide",
        ),
        (
            {"main": range(3), "gate": range(3)},
            ("--baseline", "mian"),
            "no variant 'mian' for --baseline; did you mean 'main'?",
        ),
    ],
)
def test_bad_input_is_an_error(
    tmp_path: Path, sides: dict[str, range], arguments: tuple[str, ...], message: str
) -> None:
    done = call(tmp_path, write(tmp_path, "scores.csv", sides), *arguments, "--status")
    assert isinstance(done.exception, HeadToHeadError)
    assert message in str(done.exception)

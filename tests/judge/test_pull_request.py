"""The GitHub Action: the scores of a branch against those of another one, in a real repository."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LOSSES = (2.310, 2.334, 2.321, 2.317, 2.330, 2.325)
GAIN = (0.015, 0.018, 0.017, 0.014, 0.021, 0.017)


def slow(*rows: tuple[str | None, str, str]) -> list[Any]:
    """Return cases of the slow tier."""
    return [pytest.param(*row, marks=pytest.mark.slow) for row in rows]


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def table(losses: list[float], first_seed: int = 1) -> str:
    rows = [f"{seed},{loss:.4f}\n" for seed, loss in enumerate(losses, first_seed)]
    return "seed,loss\n" + "".join(rows)


def commit(folder: Path, scores: str | None) -> None:
    (folder / "code.py").write_text(f"# {scores!r}")
    if scores is not None:
        (folder / "scores.csv").write_text(scores)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "scores")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with scores on main; the branch ``change`` is checked out."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "main")
    commit(folder, table([*LOSSES]))
    git(folder, "checkout", "--quiet", "-b", "change")
    return folder


def call(folder: Path, *arguments: str, ref: str = "main") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headtohead_judge.pull_request", "scores.csv"]
    command += ["--baseline-ref", ref, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("sign", "code", "verdict"), [(-1, 0, "better"), (1, 1, "worse")])
def test_a_pull_request_is_judged_against_main(
    repository: Path, sign: int, code: int, verdict: str
) -> None:
    commit(repository, table([loss + sign * g for loss, g in zip(LOSSES, GAIN, strict=True)]))
    done = call(repository, "--metric", "loss")
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith("## Scores of the pull request\n")
    (row,) = re.findall(r"^\| pull request \|.*$", done.stdout, re.MULTILINE)
    assert row.endswith(f"| {verdict} |")
    assert "baseline main: 2.32283" in done.stdout


def test_other_seeds_are_compared_unpaired_and_noise_is_not_decided(repository: Path) -> None:
    commit(repository, table([loss + 0.001 for loss in reversed(LOSSES)], first_seed=11))
    done = call(repository)
    assert done.returncode == 3
    assert "unpaired" in done.stdout
    assert "no difference shown" in done.stdout


def test_without_new_or_earlier_scores_nothing_fails(repository: Path) -> None:
    commit(repository, None)
    done = call(repository)
    assert (done.returncode, "there are no new scores" in done.stdout) == (0, True)
    git(repository, "checkout", "--quiet", "--orphan", "empty")
    git(repository, "rm", "--quiet", "-rf", ".")
    commit(repository, None)
    git(repository, "checkout", "--quiet", "change")
    done = call(repository, ref="empty")
    assert (done.returncode, "no scores to compare with" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("scores", "ref", "message"),
    [
        (None, "missing", "git has no branch or commit 'missing' here"),
        *slow(
            (None, "--help", "git has no branch or commit '--help' here"),
            ("variant,seed,loss\na,1,2\nb,1,3\n", "main", "has several variants: a, b"),
            ("seed,loss\n1,2\n2,x\n", "main", "'loss' of variant 'pull request', seed 2"),
            ("loss\n1\n", "main", "has no seed"),
        ),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2(
    repository: Path, scores: str | None, ref: str, message: str
) -> None:
    commit(repository, scores)
    done = call(repository, ref=ref)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert message.replace("'", "") in re.sub(r"['\\]|&#x27;|&#39;", "", done.stdout)


def test_the_action_declares_the_environment_of_its_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    script = (ROOT / "harness" / "judge" / "action.sh").read_text()
    assert set(action["inputs"]) == {"scores", "metric", "baseline-ref"}
    for name in step["env"]:
        assert f'"${name}"' in script
    assert (ROOT / step["run"].split("$GITHUB_ACTION_PATH/")[1].rstrip('"')).is_file()


@pytest.mark.slow
def test_the_script_of_the_action_installs_the_judge_and_writes_the_summary(
    repository: Path, tmp_path: Path
) -> None:
    commit(repository, table([loss + 0.0001 for loss in reversed(LOSSES)]))
    environment = os.environ | {
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "SCORES": "scores.csv",
        "METRIC": "loss",
        "BASELINE_REF": "main",
        # pip builds with the packages of this environment, and downloads nothing.
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as the option --no-build-isolation
    }
    script = ["bash", str(ROOT / "harness" / "judge" / "action.sh")]

    def run() -> int:
        return subprocess.run(
            script, cwd=repository, env=environment, capture_output=True, check=False
        ).returncode

    assert run() == 0  # not decided is no failure
    assert "| pull request |" in (tmp_path / "summary.md").read_text()
    git(repository, "checkout", "--quiet", "-b", "worse")
    commit(repository, table([loss + 1 for loss in LOSSES]))
    assert run() == 1
    assert (tmp_path / "output").read_text().split() == ["exit-code=3", "exit-code=1"]

"""Results as public benchmarks store them: every format gives the scores that its files hold, or an error of a line."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.judging import judge
from headtohead_judge.result_folders import read_results

Command = Callable[..., "subprocess.CompletedProcess[str]"]
BASE, NEW = {"42": 1.0661, "0": 1.06473, "7": 1.06563}, {"42": 1.0631, "0": 1.06213, "7": 1.0622}


def submissions(folder: Path) -> Path:
    """Write the three forms of a submission with several seeds, and one with a single score."""
    records = {
        "base": {
            "val_bpb": 1.0655,
            "seeds": [42, 0, 7],
            "seed_results": {k: {"val_bpb": v} for k, v in BASE.items()},
        },
        "new/final": {"seeds": {k: {"val_bpb": v, "val_loss": 2 * v} for k, v in NEW.items()}},
        "listed": {"seeds": [*map(int, NEW)], "seed_scores": [*NEW.values()]},
        "rows": {
            "val_bpb": 1.06,
            "seed_results": [{"seed": int(k), "val_bpb": v} for k, v in NEW.items()],
        },
        "single": {"val_bpb": 1.07, "seed": 1337},
    }
    for name, record in records.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "submission.json").write_text(json.dumps(record))
        (folder / name / "train.log").write_text("step:9/9 val_loss:9.0 train_time:9ms\n")
    return folder


def log(*runs: list[tuple[int, float]], unit: str = "ms") -> str:
    lines = ['print(f"step:{step}/{steps} val_loss:{loss}")', "===", "step:1/9 train_time:5ms"]
    lines += [
        f"step:{step}/9 val_loss:{loss} train_time:{step * 1000}{unit} step_avg:1ms"
        for r in runs
        for step, loss in r
    ]
    return "\n".join(lines)


def test_submissions_give_the_scores_of_their_seeds(tmp_path: Path, judge_here: Command) -> None:
    table = read_results(submissions(tmp_path))
    scores = {
        name: dict(zip(rows["seed"], rows["val_bpb"], strict=True))
        for name, rows in table.groupby("variant")
    }
    as_text = {
        name: {seed: str(score) for seed, score in by.items()}
        for name, by in (("base", BASE), ("new", NEW))
    }
    assert scores == {
        "base": as_text["base"],
        "new/final": as_text["new"],
        "listed": as_text["new"],
        "rows": as_text["new"],
        "single": {"1337": "1.07"},
    }
    judged = judge(table, baseline="base", metric="val_bpb", candidates=["new/final"])
    assert [(found.variant, found.judgement.direction) for found in judged.variants] == [
        ("new/final", "better")
    ]
    arguments = (".", "--metric", "val_bpb", "--baseline", "base", "--candidate")
    assert judge_here(tmp_path, *arguments, "new/final").returncode == 0
    assert (
        "no variant 'new/fnal'; did you mean 'new/final'?"
        in judge_here(tmp_path, *arguments, "new/fnal").stderr
    )


def test_logs_give_the_last_loss_of_every_run(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.txt").write_text(log([(0, 10.8), (5, 4.1), (9, 3.28)]))
    (tmp_path / "a" / "1.log").write_text(log([(0, 10.7), (9, 3.27)]))
    (tmp_path / "two.txt").write_text(log([(0, 10.8), (9, 3.31)], [(0, 10.8), (9, 3.30)], unit="s"))
    (tmp_path / "README.md").write_text(log([(9, 1.0)]))
    (tmp_path / "a" / "crashed.txt").write_text(log())
    (tmp_path / "a" / "cut.txt").write_text(log([(0, 9), (5, 4)]) + "\nstep:9/9 val_loss:3.2")
    (tmp_path / "requirements.txt").write_text("numpy")
    table = read_results(tmp_path)
    last = table[table["state"] == "finished"].query("step == '9'").drop(columns=["step", "state"])
    assert last.to_numpy().tolist() == [
        ["a", "0", "3.28", "9.0"],
        ["a", "1", "3.27", "9.0"],
        ["two", "two#1", "3.31", "9000.0"],
        ["two", "two#2", "3.3", "9000.0"],
    ]
    judged = judge(table, baseline="two", metric="val_loss", is_paired=False, step_column="step")
    assert (
        "row 6 (incomplete: no evaluation in crashed.txt), row 7 (incomplete: step 9 of cut.txt has no"
        in judged.warnings[0]
    )
    (found,) = judged.variants
    assert found.difference.mean == pytest.approx(-0.03)


def test_a_log_that_ends_before_its_last_step_is_left_out_with_its_name(tmp_path: Path) -> None:
    for variant, loss in (("a", 3.28), ("b", 3.25)):
        (tmp_path / variant).mkdir()
        for seed in range(3):
            text = log([(0, 10.8 + seed), (5, 4.1 + seed), (9, loss + 0.01 * seed**2)])
            (tmp_path / variant / f"{seed}.txt").write_text(f"{text}\n")
    (tmp_path / "b" / "3.txt").write_text(log([(0, 10.8), (5, 2.1)]) + "\n")
    (tmp_path / "b" / "4.txt").write_text(log([(0, 10.8), (5, 2.1)], [(0, 10.8), (5, 2.2)]) + "\n")
    judged = judge(
        read_results(tmp_path), baseline="a", metric="val_loss", is_paired=False, step_column="step"
    )
    assert judged.variants[0].summary.n == 3
    assert judged.warnings[0] == (
        "left out, as their state is not finished: row 19 (incomplete: 3.txt ends at step 5 of 9), "
        "row 20 (incomplete: 4.txt ends at step 5 of 9), row 21 (incomplete: 4.txt ends at step 5 of 9)"
    )


@pytest.mark.parametrize("text", ["step:1/1 val_loss:3.2 train_time:{}", "step:1/1 val_loss:{}"])
def test_a_long_line_of_a_log_takes_linear_time(text: str, tmp_path: Path) -> None:
    for filler in ("1", "val_x:"):
        (tmp_path / "1.txt").write_text(text.format(filler * (10**7 // len(filler))))
        began = time.process_time()
        assert len(read_results(tmp_path)) == 1
        assert time.process_time() - began < 2


def test_a_submission_of_many_seeds_takes_linear_time(tmp_path: Path) -> None:
    scores = {str(seed): 1 + seed / 1e5 for seed in range(50_000)}
    (tmp_path / "submission.json").write_text(json.dumps({"seed_results": scores}))
    began = time.process_time()
    assert len(read_results(tmp_path)) == len(scores)
    assert time.process_time() - began < 3


RESULTS = [
    ("a1b2c3d", 0.9979, "keep"),
    ("b2c3d4e", 0.9932, "keep"),
    ("c3d4e5f", 1.005, "discard"),
    ("d4e5f6g", 0.0, "crash"),
]


@pytest.mark.parametrize(
    ("repeats", "options", "message"),
    [
        ([], (), "--sd X, the standard deviation between seeds, adds how many a decision needs"),
        (
            [],
            ("--sd", "0.002"),
            "a standard deviation of 0.002 between seeds, a decision on the difference -0.0047 of",
        ),
        (
            [0.9999],
            (),
            "a standard deviation of 0.0014 between seeds, a decision on the difference -0.0057 of 'b2c3d4e'",
        ),
        ([], ("--sd", "9"), "needs more than 1,000 seeds each for 80 % power"),
        ([], ("--sd", "0"), "--sd must be a positive number, got 0"),
    ],
)
def test_a_single_run_per_commit_states_what_a_decision_needs(
    repeats: list[float],
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    judge_here: Command,
) -> None:
    rows = [*RESULTS, *(("a1b2c3d", score, "discard") for score in repeats)]
    lines = [
        "commit\tval_bpb\tmemory_gb\tstatus\tdescription",
        *(f"{c}\t{s}\t44.0\t{r}\tan idea" for c, s, r in rows),
    ]
    (tmp_path / "results.tsv").write_text("\n".join(lines))
    done = judge_here(
        tmp_path,
        "results.tsv",
        "--baseline",
        "a1b2c3d",
        "--candidate",
        "b2c3d4e",
        *options,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_repeated_commits_are_judged_and_crashes_left_out(tmp_path: Path) -> None:
    rows = [
        f'{commit}\t{score + shift * score**9}\t{state}\t"rate 0.1'
        for shift in (0, 0.0002, 0.0001)
        for commit, score, state in RESULTS
    ]
    (tmp_path / "any.tsv").write_text("\n".join(["commit\tval_bpb\tstatus\tdescription", *rows]))
    judged = judge(read_results(tmp_path / "any.tsv"), baseline="a1b2c3d")
    assert {found.variant: found.judgement.direction for found in judged.variants} == {
        "b2c3d4e": "better",
        "c3d4e5f": "worse",
    }
    assert "row 4 (crashed)" in judged.warnings[0]


HOSTILE: dict[str, tuple[str, str, str]] = {
    "no results": ("notes.md", "step:1/1 val_loss:3.2", "no results in the folder"),
    "no JSON": ("a/submission.json", "{", "not a submission of parameter-golf (JSONDecodeError"),
    "a list": ("a/submission.json", "[1]", "not a submission of parameter-golf (AttributeError"),
    "a seed twice": ("a/submission.json", '{"seeds": {"1": 1.0, "1": 1.1}}', "the key '1' twice"),
    "more seeds than scores": (
        "a/submission.json",
        '{"seeds": [1, 2], "seed_scores": [1.0]}',
        "shorter than",
    ),
    "two scores of a seed": (
        "a/submission.json",
        '{"seeds": [1, 2], "seed_scores": [1.0, 2], "seed_results": {"1": 1.5, "2": 2.0}}',
        "a/submission.json: val_bpb of seed 1 is 1.5 in 'seed_results', and 1.0 in 'seed_scores'; correct one of them",
    ),
    "other seeds in a list": (
        "a/submission.json",
        '{"seeds": [1, 3], "seed_results": {"1": 1.5, "2": 2.0}}',
        "'seeds' has 1, 3, and 'seed_results' the seeds 1, 2; correct one of them",
    ),
    "other seeds in a table": (
        "a/submission.json",
        '{"seeds": {"1": 1.5, "3": 2.0}, "seed_results": {"1": 1.5, "2": 2.0}}',
        "'seed_results' has the seeds 1, 2, and 'seeds' the seeds 1, 3",
    ),
    "another seed in a row": (
        "a/submission.json",
        '{"seeds": {"1": {"seed": 2, "val_bpb": 1.5}}}',
        "'seeds' has the seed 1 as key, and 2 in its field 'seed'",
    ),
    "another seed of the submission": (
        "a/submission.json",
        '{"seed": 7, "seeds": {"1": 1.5}}',
        "'seed' is 7, and 'seeds' has the seeds 1",
    ),
    "another number of seeds": (
        "a/submission.json",
        '{"n_seeds": 3, "seeds": {"1": 1.5}}',
        "'n_seeds' is 3, and 'seeds' has 1 seeds",
    ),
    "a mean outside of its seeds": (
        "a/submission.json",
        '{"val_bpb": 1.2, "seeds": {"1": 1.26, "2": 1.3}}',
        "'val_bpb' is 1.2, and val_bpb of the seeds 1, 2 is from 1.26 to 1.3; correct one of them",
    ),
    "two means": (
        "a/submission.json",
        '{"val_bpb": 1.2, "mean_val_bpb": 1.3}',
        "'mean_val_bpb' is 1.3, and val_bpb of the seeds 1 is from 1.2 to 1.2",
    ),
    "two values in a line": (
        "a/1.txt",
        "step:1/1 val_loss:3.1 train_time:5ms val_loss:3.2\n",
        "a/1.txt: step 1 has 'val_loss:3.1' and 'val_loss:3.2'; correct one of them",
    ),
    "two times in a line": (
        "a/1.txt",
        "step:1/1 val_loss:3.1 train_time:5ms train_time:6ms\n",
        "step 1 has 'train_time:5ms' and 'train_time:6ms'",
    ),
    "two last steps": (
        "a/1.txt",
        "step:1/9 val_loss:3.1\nstep:2/10 val_loss:3.0\n",
        "the last step of a run is 9 in 'step:1/9', and 10 in 'step:2/10'; correct one of them",
    ),
    "a seed twice in a list": (
        "a/submission.json",
        '{"seeds": [1, 1], "seed_scores": [1.0, 2]}',
        "the key '1' twice",
    ),
    "no score in a log": (
        "a/1.txt",
        "print(val_loss)",
        "no run is finished: the column 'state' has incomplete: no evaluation in 1.txt",
    ),
    "scores without seeds": ("a/submission.json", '{"seed_scores": [1.0]}', "KeyError: 'seeds'"),
    "a deep list": ("a/submission.json", "[" * 100_000, "(RecursionError"),
    "no number": (
        "a/submission.json",
        '{"seed_results": {"1": [1]}}',
        "'val_bpb' of variant 'a', seed 1 is not a finite",
    ),
    "no score": ("a/submission.json", '{"name": "x"}', "seed 1 has no number"),
    "NaN": ("a/1.txt", "step:1/1 val_loss:nan\n", "is not a finite number: 'nan'"),
    "a step twice": (
        "a/1.txt",
        "step:1/1 val_loss:3\nstep:1/1 val_loss:4\n",
        "variant 'a' has seed 1 twice",
    ),
    "bytes": ("a/1.txt", "\udcff\udcfe" * 9, "no results in the folder"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_unusable_results_are_an_error_of_one_line(name: str, tmp_path: Path) -> None:
    file, content, message = HOSTILE[name]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content, errors="surrogateescape")
    metric = "val_bpb" if file.endswith("json") else "val_loss"
    with pytest.raises(HeadToHeadError) as caught:
        judge(read_results(tmp_path), baseline="b", metric=metric)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pipe_and_too_many_files_are_refused_and_links_to_folders_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "1.txt").write_text(log([(9, 3.2)]))
    assert len(read_results(tmp_path)) == 1
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(HeadToHeadError, match=r"pipe\.txt.*not a regular file"):
        read_results(tmp_path)
    monkeypatch.setattr("headtohead_judge.result_folders.MAX_FILES", 1)
    with pytest.raises(HeadToHeadError, match="has 2 files, more than 1; name a folder in it"):
        read_results(tmp_path)

"""The command ``h2h data``."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headtohead.cli import main

PAIRS = "".join(f"I see {n} cats\tveo {n} gatos\n" for n in range(40)) + "lonely\t\n"


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pairs.tsv").write_text(PAIRS)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["data", *arguments])

    return call


def table(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    return {line[:12].strip(): line[12:] for line in result.output.splitlines()}


def test_stats_of_a_dataset_by_name(run: Run) -> None:
    shown = table(run("stats", "toy-grammar", "--set", "size=1000"))
    assert shown["pairs"] == "1000: train 900, valid 50, test 50"
    assert shown["leak"].startswith("0.0% of test pairs")
    assert 0.3 < float(shown["upper bound"].split()[0]) < 0.8
    assert shown["licence"] == "MIT"


def test_stats_of_a_file_list_dropped_pairs_and_measurements(run: Run, tmp_path: Path) -> None:
    shown = table(
        run(
            "stats", "tatoeba", "--set", f"file={tmp_path / 'pairs.tsv'}", "--set", "pair=eng-spa", "--set", "split=row"
        )
    )
    assert shown["dropped"] == "0 empty, 1 one-sided, 0 too-long"
    assert shown["leak"].startswith("0.0%")
    assert shown["split"] == "row"
    assert shown["source"] == "words per sentence: mean 4.00, p50 4, p95 4, p99 4, max 4"
    assert "Tatoeba" in shown["citation"]
    assert shown["note"]


def test_stats_of_an_experiment_file_are_those_of_its_baseline(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "question: does it matter?\n"
        "base:\n  data: {dataset: toy-grammar, size: 500}\n  train: {epochs: 1}\n"
        "baseline: {positional: sinusoidal}\n"
        "design:\n  - one_at_a_time: {positional: [none]}\n"
    )
    shown = table(run("stats", str(tmp_path / "x.yaml"), "--set", "data.split=length"))
    assert shown["split"] == "length"
    assert shown["pairs"].startswith("500: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stats", "toy-gramar"), "h2h: unknown dataset 'toy-gramar'; did you mean 'toy-grammar'?"),
        (("stats", "toy-grammar", "--set", "siz=3"), "unknown field 'siz'"),
        (("stats", "toy-grammar", "--set", "size"), "h2h: --set data.size: expected path=value"),
        (("stats", "tatoeba", "--set", "file=none.tsv"), "none.tsv' does not exist"),
        (("fetch", "tatoeba", "--set", "pair=x"), "expected two language codes such as eng-spa"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1

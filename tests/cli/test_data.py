"""The command ``h2h data``."""

import numpy as np
import pytest


@pytest.fixture
def stats(h2h):
    """Return the table of ``h2h data stats`` by row."""

    def table(*arguments):
        code, output = h2h("data", "stats", *arguments)
        assert code == 0, output
        return {line[:12].strip(): line[12:] for line in output.splitlines()}

    return table


def test_stats_of_a_dataset_by_name(stats):
    shown = stats("toy-grammar", "--set", "size=1000")
    assert shown["pairs"] == "1000: train 900, valid 50, test 50"
    assert shown["leak"].startswith("0.0 % of the test sources")
    assert 0.3 < float(shown["upper bound"].split()[0]) < 0.8
    assert shown["licence"] == "MIT"


def test_stats_of_a_file_list_dropped_pairs_and_measurements(stats, tmp_path):
    pairs = "".join(f"I see {n} cats\tveo {n} gatos\n" for n in range(40)) + "lonely\t\n"
    (tmp_path / "pairs.tsv").write_text(pairs)
    shown = stats(
        "tatoeba", "--set", "file=pairs.tsv", "--set", "pair=eng-spa", "--set", "split=row"
    )
    assert shown["dropped"] == "0 empty, 1 one-sided, 0 too-long"
    assert shown["leak"].startswith("0.0 %")
    assert shown["split"] == "row"
    assert shown["source"] == "words per sentence: mean 4.00, p50 4, p95 4, p99 4, max 4"
    assert "Tatoeba" in shown["citation"]
    assert shown["note"]


def test_stats_of_an_experiment_file_are_those_of_its_baseline(stats, tmp_path):
    (tmp_path / "x.yaml").write_text(
        "question: does it matter?\n"
        "base:\n  data: {dataset: toy-grammar, size: 500}\n  train: {epochs: 1}\n"
        "baseline: {positional: sinusoidal}\n"
        "design:\n  - one_at_a_time: {positional: [none]}\n"
    )
    shown = stats("x.yaml", "--set", "data.split=length")
    assert shown["split"] == "length"
    assert shown["pairs"].startswith("500: ")


def lines_of(numbers):
    return "".join(f"I see {number} cats\tveo {number} gatos\n" for number in numbers)


@pytest.mark.parametrize(
    ("valid", "test", "leaks"),
    [
        (range(40, 50), range(50, 60), []),
        (range(37, 47), range(50, 60), ["30.0 % of the validation sources are in training"]),
        (range(40, 50), range(48, 58), ["20.0 % of the validation sources are in the test set"]),
        (
            [*range(35, 40), *range(45, 50)],
            [*range(39, 40), *range(46, 50)],
            [
                "20.0 % of the test sources are in training",
                "50.0 % of the validation sources are in training",
                "50.0 % of the validation sources are in the test set",
            ],
        ),
    ],
)
def test_every_pair_of_given_files_with_equal_sources_is_a_leak(
    h2h, stats, tmp_path, valid, test, leaks
):
    for name, numbers in {"train": range(40), "valid": valid, "test": test}.items():
        (tmp_path / f"{name}.tsv").write_text(lines_of(numbers))
    files = ["file=train.tsv", "valid_file=valid.tsv", "test_file=test.tsv"]
    shown = stats("pairs", *(word for setting in files for word in ("--set", setting)))
    assert shown["split"] == "grouped" + ", leaky" * bool(leaks)
    found = [clause.partition(", so")[0] for clause in shown["leak"].split("; ")]
    assert [clause for clause in found if not clause.startswith("0.0 %")] == leaks
    (tmp_path / "x.yaml").write_text(
        "question: does it matter?\n"
        "base:\n  data: {dataset: pairs, file: train.tsv, valid_file: valid.tsv, test_file: test.tsv}\n"
        "  train: {epochs: 1}\nbaseline: {positional: sinusoidal}\nseeds: 1\n"
    )
    code, plan = h2h("plan", "x.yaml")
    assert code == 0, plan
    planned = [line.strip() for line in plan.splitlines() if "leaky split" in line]
    assert [line.partition(", so")[0] for line in planned] == [
        f"leaky split 'grouped': {leak}" for leak in leaks
    ]


def test_every_pair_of_parts_of_a_text_with_equal_windows_is_a_leak(stats, tmp_path):
    letters = np.random.default_rng(1).choice([*"abcdefgh "], 6000)
    text = "".join(letters)
    held_out = text[1000:1500] + text[4000:4500] + text[4250:5250]
    (tmp_path / "train.txt").write_text(text[:4000])
    (tmp_path / "valid.txt").write_text(held_out)
    files = ("--set", "file=train.txt", "--set", "valid_file=valid.txt")
    shown = stats("text", *files, "--set", "split=last")
    assert shown["example"] == text[:65]
    assert shown["target"].startswith("tokens per block: mean 64.")
    tokens = 999  # of the validation part; its last character is only a label
    in_training, in_test = 500, 249
    assert shown["leak"].split("; ") == [
        "0.0 % of the test text is in training",
        f"{100 * in_training / tokens:.1f} % of the validation text is in training, so the validation loss measures "
        "memorisation too",
        f"{100 * in_test / tokens:.1f} % of the validation text is in the test set, so checkpoints are selected on "
        "test examples too",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stats", "toy-gramar"), "h2h: unknown dataset 'toy-gramar'; did you mean 'toy-grammar'?"),
        (("stats", "toy-grammar", "--set", "siz=3"), "unknown field 'siz'"),
        (
            ("stats", "toy-grammar", "--set", "size"),
            "h2h: --set size: expected path=value, such as pair=eng-spa or split=row",
        ),
        (("stats", "tatoeba", "--set", "file=none.tsv"), "none.tsv' does not exist"),
        (("fetch", "tatoeba", "--set", "pair=x"), "expected two language codes such as eng-spa"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(h2h, arguments, message):
    code, output = h2h("data", *arguments)
    assert (code, output.count("\n")) == (2, 1)
    assert message in output

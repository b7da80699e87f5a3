"""The command ``h2h data``."""

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
    shown = stats("tatoeba", "--set", "file=pairs.tsv", "--set", "pair=eng-spa", "--set", "split=row")
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
def test_bad_input_is_one_line_and_exit_code_2(h2h, arguments, message):
    code, output = h2h("data", *arguments)
    assert (code, output.count("\n")) == (2, 1)
    assert message in output

"""A design is counted before it is expanded; too many runs are refused in one line."""

import time
from pathlib import Path

import pytest

from headtohead.config.loading import MAX_RUNS, load_text
from headtohead.planning.design import expand
from made import refused

BASE = "question: q\nbase: {data: {size: 400}, model: {layers: 1}, train: {epochs: 1}}\n"
WIDTHS, RATES = (
    [4 * number for number in range(1, 1000)],
    [number / 1e5 for number in range(1, 1000)],
)
MILLION = f"design: [{{product: {{model.d_model: {WIDTHS}, train.lr: {RATES}}}}}]\n"


def load(text, **options):
    return load_text(BASE + text, Path("x.yaml"), **options)


def test_a_million_variants_are_refused_in_one_line():
    assert refused(load, MILLION) == (
        "x.yaml: 998,001 variants × 6 seeds are 5,988,006 runs, more than the limit of 100,000; "
        "vary fewer values, or raise the limit: --max-runs 5988006"
    )


def test_an_option_of_the_command_sets_the_limit(tmp_path, h2h_here):
    text = BASE + "design: [{product: {model.d_model: [4, 8]}}]\nseeds: 3\n"
    (tmp_path / "x.yaml").write_text(text)
    done = h2h_here(tmp_path, "run", "x.yaml", "--max-runs", "5")
    assert (done.returncode, done.stderr) == (
        2,
        "h2h: x.yaml: 2 variants × 3 seeds are 6 runs, more than the limit of 5; vary fewer "
        "values, or raise the limit: --max-runs 6\n",
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.timed
def test_too_many_seeds_are_refused_without_expanding_them():
    started = time.process_time()
    assert refused(load, "seeds: 1000000").startswith(
        "x.yaml: 1 variant × 1,000,000 seeds are 1,000,000 runs"
    )
    assert refused(load, "", seeds=100001).startswith(
        "x.yaml: 1 variant × 100,001 seeds are 100,001"
    )
    assert len(load("seeds: 100000").seeds) == MAX_RUNS
    assert len(load("", seeds=list(range(1, 100_001))).seeds) == MAX_RUNS
    assert time.process_time() - started < 2


def test_blocks_add_up_and_the_limit_itself_is_allowed():
    blocks = [
        "product: {model.d_model: [4, 8, 12], model.heads: [1, 2]}",
        "one_at_a_time: {train.lr: [0.1, 0.2], model.dropout: [0.5]}",
        "zip: {model.d_ff: [1, 2, 3, 4], train.weight_decay: [1, 2, 3, 4]}",
    ]
    counts = [3 * 2, 2 + 1, 4]
    for chosen in ([0], [1], [2], [0, 1, 2]):
        text = f"design: [{', '.join(f'{{{blocks[name]}}}' for name in chosen)}]\nseeds: 5\n"
        runs = 5 * sum(counts[name] for name in chosen)
        assert load(text, max_runs=runs).max_runs == runs
        assert f"are {runs} runs, more than the limit of {runs - 1};" in refused(
            load, text, max_runs=runs - 1
        )


def test_the_variants_between_two_configurations_count():
    text = """
design:
  - between:
      from: {model: {norm: post, embedding_scale: one, bias: false}, train: {lr: 0.1}}
      to: {model: {norm: pre, embedding_scale: sqrt-d_model, bias: true}, train: {lr: 0.2}}
seeds: 5
"""

    def points(**options):
        return len(expand(load(text, **options)).variants)

    runs = 5 * points()
    assert runs > 5 * 4
    assert 5 * points(max_runs=runs) == runs
    assert f"variants × 5 seeds are {runs} runs, more than" in refused(points, max_runs=runs - 1)

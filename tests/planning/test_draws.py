"""``data.seed: per-run``: every seed of a study has its own draw of the data."""

import pytest

from made import refused

PAIR = "design: [{product: {positional: [sinusoidal, rotary]}}]"
PER_RUN = "data.seed=per-run"


def test_variants_share_the_draw_of_a_seed_and_seeds_do_not(plan):
    found = plan(PAIR, PER_RUN, seeds=3)
    hashes = {run.seed: set() for run in found.runs}
    for run in found.runs:
        hashes[run.seed].add(found.data_of(run).data_hash)
    assert [len(of_seed) for of_seed in hashes.values()] == [1, 1, 1]
    assert len(set.union(*hashes.values())) == 3
    words = {tuple(found.data_of(run).source_vocabulary.words) for run in found.runs}
    assert len(words) == 3


def test_a_run_equals_the_run_with_its_seed_as_a_number(plan):
    drawn = plan(PAIR, PER_RUN, seeds=[2, 7])
    for seed in (2, 7):
        plain = plan(PAIR, f"data.seed={seed}", seeds=[seed])
        of_seed = [run for run in drawn.runs if run.seed == seed]
        assert [run.run_hash for run in plain.runs] == [run.run_hash for run in of_seed]
        for run, expected in zip(of_seed, plain.runs, strict=True):
            record, plain_record = drawn.run_record(run), plain.run_record(expected)
            assert record.config.data.seed == seed
            assert record.model_copy(update={"created": plain_record.created}) == plain_record


def test_a_finished_run_is_found_again(plan, record):
    first = plan(PAIR, PER_RUN, seeds=2)
    for run in first.runs:
        record(first, run)
    assert not plan(PAIR, PER_RUN, seeds=2).remaining
    assert [run.seed for run in plan(PAIR, PER_RUN, seeds=3).remaining] == [3, 3]


def test_the_sweep_has_draws_of_its_own(plan):
    found = plan(f"{PAIR}\ntune: {{train.lr: [0.01, 0.02]}}", PER_RUN, seeds=3)
    own = {found.data_of(run).data_hash for run in found.runs}
    tried = {found.tuning.plan.data_of(run).data_hash for run in found.tuning.plan.runs}
    assert (len(own), len(tried)) == (3, 2)
    assert not own & tried


@pytest.mark.parametrize(
    ("text", "override", "message"),
    [
        (
            "design: [{product: {data.seed: [1, per-run]}}]",
            "data.size=400",
            "per-run must hold for all variants, as variants are compared on the same data",
        ),
        (
            "",
            "data.split=nothing-held-out",
            "per-run requires different data for each seed, but seeds 1 and 2 have the same data with dataset "
            "'toy-grammar' and split 'nothing-held-out'; use a number, or another split",
        ),
        ("", "data.seed=per_run", "expected 'per-run', got 'per_run'; did you mean 'per-run'?"),
        ("", "data.seed=random", "expected a valid integer, got 'random'"),
    ],
)
def test_data_that_cannot_be_drawn_anew_is_an_error_of_one_line(plan, text, override, message):
    overrides = [override] if "data.seed" in override + text else [PER_RUN, override]
    assert message in refused(plan, text, *overrides, seeds=2)


@pytest.mark.slow
def test_data_without_a_run_cannot_be_drawn(cache):
    from headtohead.data import prepare
    from made.data_section import data_config

    message = "data.seed: per-run requires the seed of a run; replace it by a number"
    assert message in refused(prepare, data_config(seed="per-run"), cache)

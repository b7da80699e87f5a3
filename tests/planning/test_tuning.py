"""A sweep before the experiment: its settings, its errors, and its choice."""

import re

import pytest

from headtohead.planning.overview import overview
from made import refused

SWEEP = """
design: [{product: {positional: [sinusoidal, alibi]}}]
tune: {train.lr: [0.003, 0.001], model.dropout: [0, 0.2]}
"""


@pytest.fixture
def finish(record):
    """Give every run of a sweep a validation loss, by variant and setting."""

    def finish(sweep, loss):
        for run in sweep.runs:
            config = sweep.by_slug[run.variant].config
            value = loss(config.positional.encoder.name, config.train.lr, config.model.dropout_residual, run.seed)
            record(sweep, run, metrics={"valid/loss": value})

    return finish


def test_every_variant_is_trained_with_every_setting_on_separate_seeds(plan):
    found = plan(SWEEP, seeds=3)
    sweep = found.tuning.plan
    assert sweep.name == "x-tuning"
    assert [setting.name for setting in found.tuning.settings] == [
        "lr 0.003, dropout 0",
        "lr 0.003, dropout 0.2",
        "lr 0.001, dropout 0",
        "lr 0.001, dropout 0.2",
    ]
    assert len(sweep.variants) == 2 * 4
    assert sweep.design.seeds == (1_000_001, 1_000_002)
    assert {run.seed for run in sweep.runs}.isdisjoint(found.design.seeds)
    config = sweep.by_slug["alibi-lr-0.001-dropout-0.2"].config
    assert (config.positional.encoder.name, config.train.lr) == ("alibi", 0.001)
    assert config.model.dropout_attention == config.model.dropout_residual == 0.2
    assert config.model.d_model == found.by_slug["alibi"].config.model.d_model


@pytest.mark.parametrize(
    ("tune", "expected"),
    [
        ("model.mask_value: [-inf, additive, -1e9]", ["-inf", "additive", "-1e9"]),
        ("train.clip_norm: [2, null, 1.0]", [2.0, None, 1.0]),
        ("train.lr: [1.0e-3, 0.01]", [0.001, 0.01]),
    ],
)
def test_every_value_is_trained_once_in_the_order_of_the_file_in_any_notation(plan, tune, expected):
    found = plan(f"tune: {{{tune}}}", seeds=1).tuning
    section, _, name = tune.partition(":")[0].partition(".")
    assert [setting.values[f"{section}.{name}"] for setting in found.settings] == expected
    configs = [variant.config for variant in found.plan.variants]
    assert [getattr(getattr(config, section), name) for config in configs] == expected


def test_a_tuned_field_overrides_the_shorthand_in_any_order(plan):
    fields = ["model.dropout: [0.1, 0.4]", "model.dropout_ffn: [0.2, 0.3]"]
    for written in (fields, fields[::-1]):
        configs = [variant.config.model for variant in plan(f"tune: {{{', '.join(written)}}}").tuning.plan.variants]
        assert {(model.dropout_residual, model.dropout_ffn) for model in configs} == {
            (0.1, 0.2),
            (0.1, 0.3),
            (0.4, 0.2),
            (0.4, 0.3),
        }


def test_a_plan_before_its_tuning_states_the_time_and_not_that_nothing_remains(plan, finish):
    finish(plan(SWEEP.partition("tune:")[0], seeds=3), lambda name, lr, dropout, seed: 1.0)
    lines = overview(plan(SWEEP, seeds=3)).lines
    assert any(line.startswith("time: ") for line in lines)
    assert any("the tuning chooses their settings" in line for line in lines)


def test_each_variant_gets_the_setting_of_least_mean_validation_loss(plan, finish):
    best = {"sinusoidal": (0.003, 0.2), "alibi": (0.001, 0.0)}

    def loss(name, lr, dropout, seed):
        return 1.0 if (lr, dropout) == best[name] else 1.5 + 0.01 * (seed - 1_000_000)

    finish(plan(SWEEP, seeds=3).tuning.plan, loss)
    found = plan(SWEEP, seeds=3)
    assert found.tuning.is_done
    for name, (lr, dropout) in best.items():
        config = found.by_slug[name].config
        assert (config.train.lr, config.model.dropout_residual) == (lr, dropout)
    record = found.record().to_json()["tuning"]
    assert record["variants"]["alibi"]["chosen"] == {"train.lr": 0.001, "model.dropout": 0}
    assert record["seeds"] == [1_000_001, 1_000_002]
    means = [trial["mean"] for trial in record["variants"]["alibi"]["tried"]]
    assert means == [pytest.approx(1.515), pytest.approx(1.515), 1.0, pytest.approx(1.515)]


def test_tune_epochs_shortens_the_sweep_only(plan, finish):
    text = SWEEP + "tune_epochs: 0.5\n"
    first = plan(text, seeds=1)
    assert {variant.config.train.epochs for variant in first.tuning.plan.variants} == {0.5}
    assert {variant.config.train.steps for variant in first.tuning.plan.variants} == {None}
    trained = {(variant.config.train.epochs, variant.config.train.steps) for variant in first.variants}
    assert trained.isdisjoint({(0.5, None)})
    finish(first.tuning.plan, lambda name, lr, dropout, seed: lr)
    found = plan(text, seeds=1)
    assert found.record().to_json()["tuning"]["epochs"] == 0.5
    assert {variant.config.train.lr for variant in found.variants} == {0.001}
    assert {(variant.config.train.epochs, variant.config.train.steps) for variant in found.variants} == trained


def test_a_setting_that_diverged_is_never_chosen(plan, record):
    sweep = plan(SWEEP, seeds=3).tuning.plan
    for run in sweep.runs:
        if "lr-0.003" in run.variant and run.seed == 1_000_002:
            record(sweep, run, state="DIVERGED")
        else:
            loss = 0.1 if "lr-0.003" in run.variant else 2.0
            record(sweep, run, metrics={"valid/loss": loss})
    found = plan(SWEEP, seeds=3)
    assert found.by_slug["alibi"].config.train.lr == 0.001


def test_the_estimate_includes_the_tuning_runs_while_they_remain(plan, finish):
    without = plan(SWEEP.partition("tune:")[0], seeds=3).estimate
    found = plan(SWEEP, seeds=3)
    assert found.estimate.seconds == pytest.approx(without.seconds + found.tuning.plan.estimate.seconds)
    assert found.estimate.basis == f"{without.basis}, with the tuning runs"
    finish(found.tuning.plan, lambda name, lr, dropout, seed: lr)
    assert plan(SWEEP, seeds=3).estimate == without


@pytest.mark.parametrize("values", ["0.001, 0.002, 0.003", "0.001, 0.002"])
def test_a_best_value_at_the_edge_is_noted(plan, finish, values):
    text = f"tune: {{train.lr: [{values}]}}"
    finish(plan(text, seeds=1).tuning.plan, lambda name, lr, dropout, seed: lr)
    assert plan(text, seeds=1).tuning.variants["baseline"].at_the_edge == ("train.lr",)


@pytest.mark.parametrize(
    ("text", "location", "word"),
    [
        ("tune: {train.lr: [0.1, fast]}", "tune.train.lr[1]:", "expected a valid number, got 'fast'"),
        ("tune: {lr: [0.1]}", "tune.lr:", "did you mean 'train.lr'"),
        ("tune: {train.steps: [1]}", "tune.train.steps:", "'train.steps' cannot be tuned"),
        ("tune: {}", "tune:", "tune has no field"),
        (
            "design: [{product: {train.lr: [0.1, 0.2]}}]\ntune: {train.lr: [0.1]}",
            "tune.train.lr:",
            "'train.lr' is an axis of",
        ),
        (
            "design: [{one_at_a_time: {model.dropout_attention: [0.4]}}]\ntune: {model.dropout: [0.1, 0.2]}",
            "tune.model.dropout:",
            "'model.dropout_attention' is an axis of",
        ),
    ],
)
def test_an_invalid_sweep_is_one_line_with_its_location(plan, text, location, word):
    message = refused(plan, text, seeds=1)
    assert re.match(rf"x\.yaml:\d+: {re.escape(location)}.*{re.escape(word)}", message)

"""A sweep before the experiment: its settings, its errors, and its choice."""

import math
import re
import shutil
from dataclasses import replace

import pytest

from headtohead import files
from headtohead.planning.estimate import estimate_time
from headtohead.planning.overview import overview
from headtohead.planning.record import experiment_record
from made import case_table, refused
from planning.conftest import SMALL

SWEEP = """
design: [{product: {positional: [sinusoidal, alibi]}}]
tune: {train.lr: [0.003, 0.001], model.dropout: [0, 0.2]}
"""
BETWEEN = """
design:
  - between:
      from: {train: {lr: 0.008, warmup_steps: 9, clip_norm: 1}, model.norm: pre}
      to: {train: {lr: 0.008, warmup_steps: 1, clip_norm: 2}, model.norm: post}
      groups: {stability: [train.warmup_steps, train.clip_norm]}
"""
NO_SINGLE_CHANGE = """
exclude:
  - {when: {model.norm: post, train.warmup_steps: 9}, reason: r}
  - {when: {model.norm: pre, train.warmup_steps: 1}, reason: r}
"""


@pytest.fixture
def finish(record):
    """Give every run of a sweep a validation loss, by variant and setting."""

    def finish(sweep, loss):
        for run in sweep.runs:
            config = sweep.by_slug[run.variant].config
            value = loss(
                config.positional.encoder.name,
                config.train.lr,
                config.model.dropout_residual,
                run.seed,
            )
            record(sweep, run, metrics={"valid/loss": value})

    return finish


@pytest.fixture
def finished(plan, finish):
    """Return the plan after every run of the sweep and of its widenings, and the number of sweeps."""

    def finished(text, loss, seeds=1):
        for sweeps in range(10):
            found = plan(text, seeds=seeds)
            if found.tuning.is_done:
                return found, sweeps
            finish(replace(found.tuning.plan, runs=tuple(found.tuning.plan.remaining)), loss)
        raise AssertionError("the sweep does not end")

    return finished


def test_every_variant_is_trained_with_every_setting_on_separate_seeds(plan):
    found = plan(SWEEP, seeds=3)
    sweep = found.tuning.plan
    assert sweep.name == "x-tuning"
    assert [setting.name for setting in found.tuning.settings["sinusoidal"]] == [
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
    assert [
        setting.values[f"{section}.{name}"] for setting in found.settings["baseline"]
    ] == expected
    configs = [variant.config for variant in found.plan.variants]
    assert [getattr(getattr(config, section), name) for config in configs] == expected


def test_a_tuned_field_overrides_the_shorthand_in_any_order(plan):
    fields = ["model.dropout: [0.1, 0.4]", "model.dropout_ffn: [0.2, 0.3]"]
    for written in (fields, fields[::-1]):
        configs = [
            variant.config.model
            for variant in plan(f"tune: {{{', '.join(written)}}}").tuning.plan.variants
        ]
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


def test_each_variant_gets_the_setting_of_least_mean_validation_loss(finished):
    best = {"sinusoidal": (0.003, 0.2), "alibi": (0.001, 0.0)}

    def loss(name, lr, dropout, seed):
        return 1.0 if (lr, dropout) == best[name] else 1.5 + 0.01 * (seed - 1_000_000)

    found, _ = finished(SWEEP, loss, seeds=3)
    for name, (lr, dropout) in best.items():
        config = found.by_slug[name].config
        assert (config.train.lr, config.model.dropout_residual) == (lr, dropout)
    record = experiment_record(found).to_json()["tuning"]
    assert record["variants"]["alibi"]["chosen"] == {"train.lr": 0.001, "model.dropout": 0}
    assert record["seeds"] == [1_000_001, 1_000_002]
    tried = record["variants"]["alibi"]["tried"][:4]
    losses = [[run["scores"]["valid/loss"] for run in trial["runs"]] for trial in tried]
    assert losses[0][:2] == losses[1][:2] == losses[3][:2] == [1.51, 1.52]
    assert losses[2] == [1.0] * 6
    assert [run["seed"] for run in tried[2]["runs"]] == list(range(1_000_001, 1_000_007))


def test_tune_epochs_shortens_the_sweep_only(plan, finished):
    text = SWEEP + "tune_epochs: 0.5\n"
    first = plan(text, seeds=1)
    assert {variant.config.train.epochs for variant in first.tuning.plan.variants} == {0.5}
    assert {variant.config.train.steps for variant in first.tuning.plan.variants} == {None}
    trained = {
        (variant.config.train.epochs, variant.config.train.steps) for variant in first.variants
    }
    assert trained.isdisjoint({(0.5, None)})
    found, _ = finished(text, lambda name, lr, dropout, seed: abs(lr - 0.001))
    assert experiment_record(found).to_json()["tuning"]["epochs"] == 0.5
    assert {variant.config.train.lr for variant in found.variants} == {0.001}
    assert {
        (variant.config.train.epochs, variant.config.train.steps) for variant in found.variants
    } == trained


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


def test_the_estimate_includes_the_tuning_runs_while_they_remain(plan, finished):
    without = estimate_time(plan(SWEEP.partition("tune:")[0], seeds=3))
    found = plan(SWEEP, seeds=3)
    assert estimate_time(found).seconds == pytest.approx(
        without.seconds + estimate_time(found.tuning.plan).seconds
    )
    assert estimate_time(found).basis == f"{without.basis}, with the tuning runs"
    assert (
        estimate_time(finished(SWEEP, lambda name, lr, dropout, seed: abs(lr - 0.003), seeds=3)[0])
        == without
    )


@case_table(
    ("field", "values", "best", "tried", "sweeps"),
    [
        ("train.lr", "[0.003, 0.001]", 0.0003, [0.003, 0.001, 0.000333333, 0.000111111], 4),
        ("model.dropout", "[0.3, 0.6]", 1.0, [0.3, 0.6], 2),
        ("model.dropout", "[0, 0.3]", 0.0, [0.0, 0.3], 2),
        ("train.lr", "auto", 0.5e-3, [0.25e-3, 0.5e-3, 1e-3, 2e-3], 2),
        ("train.lr", "auto", 8e-3, [0.25e-3, 0.5e-3, 1e-3, 2e-3, 4e-3, 8e-3, 16e-3], 5),
    ],
    default=3,
)
def test_a_best_value_at_the_edge_is_followed_by_a_further_value(
    finished, field, values, best, tried, sweeps
):
    text = f"tune: {{{field}: {values}}}"
    found, count = finished(
        text, lambda name, lr, dropout, seed: abs((lr if field == "train.lr" else dropout) - best)
    )
    assert [
        setting.values[field] for setting in found.tuning.settings["baseline"]
    ] == pytest.approx(tried)
    assert (count, found.tuning.variants["baseline"].at_the_edge) == (
        sweeps,
        (field,) * (best == 1),
    )


def test_only_the_variant_at_the_edge_gets_further_values(finished):
    text = "design: [{product: {positional: [sinusoidal, alibi]}}]\ntune: {train.lr: [0.001, 0.002, 0.004]}"
    found, _ = finished(
        text, lambda name, lr, dropout, seed: abs(lr - {"sinusoidal": 0.002, "alibi": 0.008}[name])
    )
    assert {name: len(settings) for name, settings in found.tuning.settings.items()} == {
        "sinusoidal": 3,
        "alibi": 5,
    }
    assert found.tuning.coarse == "3 to 5 values of the learning rate"
    assert found.by_slug["alibi"].config.train.lr == 0.008
    tried = experiment_record(found).tuning.variants["alibi"].tried
    assert [trial.is_further for trial in tried] == [False, False, False, True, True]
    assert any(
        "with lr 0.001; lr 0.002; lr 0.004; 2 seeds" in line for line in overview(found).lines
    )


def test_a_further_value_of_a_shorthand_keeps_the_fields_that_are_tuned_too(finished):
    text = "tune: {model.dropout: [0.1, 0.2], model.dropout_ffn: [0.2, 0.1]}"
    found, _ = finished(text, lambda name, lr, dropout, seed: abs(dropout - 0.4))
    tried = [
        (setting.values, setting.changes["model"]) for setting in found.tuning.settings["baseline"]
    ]
    assert found.by_slug["baseline"].config.model.dropout_residual == 0.4
    assert all(values["model.dropout_ffn"] == changes["dropout_ffn"] for values, changes in tried)


def test_an_added_variant_leaves_the_further_values_of_others_in_the_sweep(plan, finish, finished):
    text = "design: [{product: {positional: [sinusoidal, %s]}}]\ntune: {train.lr: auto}"
    first, _ = finished(text % "alibi", lambda name, lr, dropout, seed: abs(lr - 0.004))
    second = plan(text % "alibi, none", seeds=1).tuning
    assert {run.run_hash for run in first.tuning.plan.runs} < {
        run.run_hash for run in second.plan.runs
    }
    assert {run.variant.partition("-")[0] for run in second.plan.remaining} == {"none"}
    assert not second.is_done


def test_deleted_tuning_runs_leave_the_recorded_choice(plan, finished, record):
    """The best rate of alibi is beyond the listed rates."""
    text = "design: [{product: {positional: [sinusoidal, alibi]}}]\ntune: {train.lr: [0.001, 0.002, 0.004]}"
    before, _ = finished(
        text, lambda name, lr, dropout, seed: abs(lr - {"sinusoidal": 0.002, "alibi": 0.008}[name])
    )
    for run in before.runs:
        record(before, run)
    files.write_json(before.directory / "experiment.json", experiment_record(before).to_json())
    sweep = before.tuning.plan
    deleted = next(run for run in sweep.runs if run.variant == "alibi-lr-0.001")
    shutil.rmtree(deleted.path(sweep.directory))
    found = plan(text, seeds=1)
    assert [run.run_hash for run in found.runs] == [run.run_hash for run in before.runs]
    assert {run.state for run in found.runs} == {"DONE"}
    assert (found.tuning.variants, found.tuning.is_done) == (before.tuning.variants, False)
    assert [run.run_hash for run in found.tuning.plan.remaining] == [deleted.run_hash]
    assert any(
        "1 run missing, chosen by the losses of the last plan; h2h run trains" in line
        for line in overview(found).lines
    )
    shutil.rmtree(sweep.directory)
    without_sweep = plan(text, seeds=1)
    assert {run.state for run in without_sweep.runs} == {"DONE"}
    assert len(without_sweep.tuning.without_result) == len(sweep.runs) == 16 + 2 * 2 * 4
    # Of other runs, the record has no trial.
    for other in (plan(text, "model.d_ff=32", seeds=1), plan(text, seeds=1, fresh=True)):
        assert (other.tuning.is_chosen, other.tuning.is_done) == (False, False)


@pytest.mark.parametrize(
    ("field", "base", "values"),
    [
        ("model.dropout", "model.dropout=0.5", [0.0625, 0.125, 0.25, 0.5]),
        ("train.warmup_steps", "train.warmup_steps=100", [25, 50, 100, 200]),
        ("train.warmup_steps", "train.warmup_steps=1", [1, 2, 4, 8]),
        ("train.schedule.decay_fraction", "train.schedule=wsd", [0.05, 0.1, 0.2, 0.4]),
    ],
)
def test_auto_lists_the_values_that_a_field_can_have(plan, field, base, values):
    settings = plan(f"tune: {{{field}: auto}}", base, seeds=1).tuning.settings["baseline"]
    assert [setting.values[field] for setting in settings] == values


def test_auto_of_a_shorthand_is_refused_if_its_fields_differ(plan):
    message = refused(plan, "tune: {model.dropout: auto}", "model.dropout_ffn=0.4", seeds=1)
    assert re.match(
        r"x\.yaml:\d+: tune\.model\.dropout: auto needs a single number in base", message
    )
    assert "the fields of 'model.dropout' have [0.0, 0.0, 0.4, 0.0]" in message


def test_every_variant_between_two_configurations_has_a_rate_around_that_of_the_first(finished):
    found, _ = finished(
        BETWEEN + "tune: {train.lr: auto}",
        lambda name, lr, dropout, seed: math.log(lr / 0.004) ** 2,
        seeds=2,
    )
    assert [setting.values["train.lr"] for setting in found.tuning.settings["to"]] == [
        0.002,
        0.004,
        0.008,
        0.016,
    ]
    assert {found.by_slug[change.variant].config.train.lr for change in found.design.changes} == {
        0.004
    }


def test_a_sweep_that_never_gets_worse_ends_at_the_edge(finished):
    found, sweeps = finished("tune: {train.lr: auto}", lambda name, lr, dropout, seed: lr)
    assert (sweeps, len(found.tuning.settings["baseline"])) == (5, 7)
    assert found.tuning.variants["baseline"].at_the_edge == ("train.lr",)
    assert "the best value may be outside the sweep" in overview(found).sections["tuned"][0]


def test_a_coarse_sweep_is_noted(plan):
    for text, reason in (
        ("tune: {train.lr: auto}", ""),
        (
            "tune: {train.lr: [0.1, 0.2]}\ntune_seeds: 1\ntune_epochs: 2",
            "2 values of the learning rate, 1 seed, train.epochs 2 only",
        ),
    ):
        found = plan(text, seeds=1)
        assert found.tuning.weaknesses == reason
        notes = [line for line in overview(found).lines if "may miss the best setting" in line]
        assert [note.partition(": ")[2].partition(";")[0] for note in notes] == [reason] * bool(
            reason
        )


@pytest.mark.parametrize(
    ("text", "location", "word"),
    [
        (
            "tune: {train.lr: [0.1, fast]}",
            "tune.train.lr[1]:",
            "expected a valid number, got 'fast'",
        ),
        ("tune: {lr: [0.1]}", "tune.lr:", "did you mean 'train.lr'"),
        ("tune: {train.steps: [1]}", "tune.train.steps:", "'train.steps' cannot be tuned"),
        ("tune: {}", "tune:", "tune has no field"),
        ("tune_epochs: 2", "tune_epochs:", "requires tune; add the values to try, or leave it out"),
        ("tune: {train.lr: 0.1}", "tune.train.lr:", "expected a list, got 0.1"),
        ("tune: {train.lr: automatic}", "tune.train.lr:", "'automatic'"),
        ("tune: {train.lr: atuo}", "tune.train.lr:", "did you mean 'auto'?"),
        (
            "tune: {model.dropout: auto}",
            "tune.model.dropout:",
            "auto needs a number above 0 in base, got 0.0",
        ),
        (
            "design: [{product: {train.lr: [0.1]}}]\ntune: {train.lr: [0.1]}",
            "tune.train.lr:",
            "the design compares values of 'train.lr'",
        ),
        (
            f"{BETWEEN}tune: {{train.warmup_steps: [1, 9]}}",
            "tune.train.warmup_steps:",
            "the design compares values of",
        ),
        (
            f"{BETWEEN}{NO_SINGLE_CHANGE}tune: {{train.warmup_steps: [1, 9]}}",
            "tune.train.warmup_steps:",
            "the design compares values of",
        ),
        (
            "design: [{one_at_a_time: {model.dropout_attention: [0.4]}}]\ntune: {model.dropout: [0.1, 0.2]}",
            "tune.model.dropout:",
            "the design compares values of 'model.dropout'",
        ),
    ],
)
def test_an_invalid_sweep_is_one_line_with_its_location(plan, text, location, word):
    message = refused(plan, text, seeds=1)
    assert re.match(rf"x\.yaml:\d+: {re.escape(location)}.*{re.escape(word)}", message)


def test_an_option_of_a_schedule_is_tuned_between_and_beyond_its_values(plan, record):
    text = "tune: {train.schedule.decay_fraction: [0.1, 0.2, 0.4, 0.8]}"
    for minimum, values in ((0.3, 4), (0.07, 5), (2.0, 4)):
        overrides = ("train.schedule=wsd", f"train.lr={minimum}")
        while not (found := plan(text, *overrides, seeds=1)).tuning.is_done:
            sweep = found.tuning.plan
            for run in sweep.remaining:
                fraction = sweep.by_slug[run.variant].config.train.schedule.options.decay_fraction
                record(sweep, run, metrics={"valid/loss": math.log(fraction / minimum) ** 2})
        fractions = [
            variant.config.train.schedule.options.decay_fraction
            for variant in found.tuning.plan.variants
        ]
        assert len(fractions) == values
        chosen = found.by_slug["baseline"].config.train.schedule.options.decay_fraction
        assert chosen == (minimum if minimum < 1 else 0.8)  # 1.6 is no fraction


def test_the_sweep_of_each_size_has_the_models_of_the_comparison(plan):
    found = plan(
        """
        sizes:
          - {model.d_model: 8, model.d_ff: 16}
          - {model.d_model: 16, model.d_ff: 64}
        design: [{product: {positional: [sinusoidal, learned]}}]
        match: baseline-parameters
        tune: {train.lr: [0.001, 0.003]}
        """
    )
    compared = {variant.slug: variant.record.d_ff for variant in found.variants}
    assert len(set(compared.values())) > 1
    for slug, settings in found.tuning.settings.items():
        for setting in settings:
            tuned = found.tuning.plan.by_slug[f"{slug}-{setting.slug}"]
            assert tuned.record.d_ff == compared[slug]


def test_the_fields_that_a_run_needs_may_stand_in_both_configurations(plan):
    text = BETWEEN.replace("lr: 0.008", "epochs: 1") + "tune: {train.lr: [0.001, 0.003]}\n"
    found = plan(text, base=SMALL.replace("epochs: 1, ", ""))
    assert len(found.tuning.plan.variants) == len(found.variants) * 2

"""Overrides never replace the results of an experiment; further seeds and variants are added."""

import shutil

import pytest

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.planning.record import experiment_record
from headtohead.planning.replacing import dropped_note, find_replaced
from made import refused
from made.fake_study import edit

TWO = "design: [{product: {positional: [sinusoidal, alibi]}}]\n"
THREE = "design: [{product: {positional: [sinusoidal, alibi, rotary]}}]\n"
TUNED = TWO + "tune: {train.lr: [0.003, 0.001]}\n"


@pytest.fixture
def study(plan, record):
    """Write a study of two variants and three seeds, plan it again with changes, and return the plan or raise."""

    def execute(found, state="DONE"):
        found.directory.mkdir(parents=True, exist_ok=True)
        files.write_json(found.directory / "experiment.json", experiment_record(found).to_json())
        for run in found.runs:
            if not (found.directory / run.directory).exists():
                record(found, run, state=state, metrics={"valid/loss": 1.0})

    def done(text=TWO, state="DONE"):
        first = plan(text, seeds=3)
        while first.tuning and not first.tuning.is_done:
            execute(first.tuning.plan)
            first = plan(text, seeds=3)
        execute(first, state)

    def again(*overrides, text=TWO, seeds=None, **options):
        found = plan(text, *overrides, seeds=seeds, **options)
        if reason := find_replaced(found):
            raise HeadToHeadError(reason)
        return found

    again.done = done
    return again


@pytest.mark.parametrize(
    ("overrides", "options", "typed", "lost"),
    [
        (["train.epochs=2"], {"seeds": 3}, "--set train.epochs=2 --seeds 3", 6),
        ([], {"seeds": 1}, "--seeds 1", 4),
        ([], {"seeds": [1, 2, 4, 5]}, "--seeds '[1, 2, 4, 5]'", 2),
        (["data.seed=2"], {"seeds": 3, "fresh": True}, "--set data.seed=2 --seeds 3", 6),
    ],
)
def test_overrides_that_omit_results_are_refused_with_the_command(
    study, overrides, options, typed, lost
):
    study.done()
    assert refused(study, *overrides, **options) == (
        f"experiment 'x' has 6 finished or running runs, and the plan with {typed} would drop "
        f"{lost} of them from its report; add --name LABEL (name= in Python) to create experiment "
        "'x-LABEL', or edit the experiment file and run it without these options"
    )


@pytest.mark.parametrize(
    ("overrides", "seeds", "fresh"),
    [
        ([], 3, True),
        ([], [9, 3, 2, 1], False),
        (["model.d_model=8", "train.epochs=1.0"], 4, False),
        (
            ["train.checkpoint_seconds=5", "train.num_microbatches=2", "train.backend=eager"],
            3,
            True,
        ),
    ],
)
def test_the_same_runs_and_further_seeds_are_allowed(study, overrides, seeds, fresh):
    study.done()
    found = study(*overrides, seeds=seeds, fresh=fresh)
    assert sum(run.is_done for run in found.runs) == (0 if fresh else 6)


def test_an_edited_file_replaces_the_study_without_options(study):
    study.done(text=THREE + "seeds: 3\n")
    study(text=TWO + "seeds: 3\n")
    assert "drop 3 of them" in refused(study, "model.d_ff=16", text=TWO, seeds=3)
    study("train.checkpoint_seconds=60", text=TWO + "seeds: 2\n")  # no result depends on it
    study("train.epochs=1.0", text=TWO + "seeds: 2\n")  # the value of the file


@pytest.mark.parametrize(
    ("state", "protected"), [("DONE", True), ("RUNNING", True), ("KILLED", False)]
)
def test_only_results_and_live_runs_are_protected(study, state, protected):
    study.done(state=state)
    if protected:
        assert "drop 4 of them" in refused(study, seeds=1)
    else:
        study(seeds=1)


def test_a_run_of_an_ended_process_is_not_running(study, record, plan):
    study.done(state="RUNNING")
    shutil.rmtree(plan(TWO, seeds=3).directory / ".leases")
    study(seeds=1)


def test_a_separate_name_reuses_equal_runs_and_replaces_nothing(study, plan, load):
    study.done()
    found = study("train.epochs=1", seeds=1, label="quick")
    assert (found.name, found.directory.name) == ("x-quick", "x-quick")
    assert [run.reused_from.partition("/")[0] for run in found.runs] == ["x", "x"]
    assert experiment_record(found).to_json()["command"] == (
        "h2h run x.yaml --set train.epochs=1 --seeds 1 --name quick"
    )


# -- experiments with a sweep ------------------------------------------------------------------


def test_the_sweep_of_a_study_is_protected_before_the_study_has_results(study, plan):
    study.done(text=TUNED, state="PLANNED")
    assert refused(study, "model.d_ff=8", text=TUNED, seeds=3).startswith(
        "experiment 'x-tuning' has 28 finished or running runs, and the plan with --set model.d_ff=8 --seeds "
        "3 would drop 28 of them from its report; add --name LABEL"
    )


def test_further_values_of_a_sweep_are_not_dropped_by_a_plan_that_ignores_results(study, plan):
    study.done(
        text=TUNED
    )  # equal losses: the first and largest value is chosen, and a further one follows
    assert any(run.variant.endswith("lr-0.009") for run in plan(TUNED, seeds=3).tuning.plan.runs)
    assert not study(text=TUNED, seeds=4, fresh=True).tuning.is_done
    assert "would drop" in refused(study, "model.d_ff=8", text=TUNED, seeds=4, fresh=True)


def test_seeds_of_a_sweep_differ_from_all_seeds_of_a_study(study, load):
    first, second = (study(text=TUNED, seeds=number).tuning.plan for number in (1, 8))
    assert first.design.seeds == second.design.seeds
    assert [run.run_hash for run in first.runs] == [run.run_hash for run in second.runs]
    message = refused(load, "question: q", seeds=[1, first.design.seeds[0]])
    assert "must be less than or equal to 1000000, got" in message


def test_an_edited_file_names_the_finished_runs_that_leave_the_report(study):
    study.done()
    assert dropped_note(study()) is None
    assert dropped_note(study(text=THREE, seeds=3)) is None
    found = study(text=TWO.replace("alibi", "rotary"))
    assert dropped_note(found) == (
        "3 finished or running runs are no longer in the plan and leave the report, because the file or the "
        "options changed; --name LABEL keeps both experiments, h2h clean lists the runs"
    )


def test_another_file_of_the_same_name_is_refused_while_the_first_exists(study):
    study.done()
    found = study()
    first = found.runs_root.parent / "elsewhere" / f"{found.name}.yaml"
    edit(found.directory, file=f"elsewhere/{first.name}")
    study()
    first.parent.mkdir()
    first.write_text(TWO)
    message = refused(study)
    assert message.startswith(
        f"experiment '{found.name}' in '{found.runs_root}' has the runs of the file 'elsewhere/"
    )
    assert message.endswith("or add --name LABEL (name= in Python)")

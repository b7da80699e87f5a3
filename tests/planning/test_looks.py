"""Sequential seeds in a plan: the looks, the seeds of the current look, and the maximum number of runs."""

import pytest

from headtohead import files
from headtohead.planning.estimate import estimate_time
from headtohead.planning.overview import overview
from headtohead.planning.powers import powers_of
from headtohead.planning.record import experiment_record
from headtohead.schema.experiment_file import SequentialSeeds
from headtohead_judge.looks import Looks

SEQUENTIAL = "design: [{product: {positional: [sinusoidal, alibi]}}]\nseeds: {until: decided, at_most: 8, looks: 2}\n"


def test_a_plan_has_the_seeds_of_the_first_look_and_states_the_rest(plan):
    found = plan(SEQUENTIAL)
    assert found.looks == Looks((4, 8))
    assert found.design.seeds == (1, 2, 3, 4)
    level = 100 * (1 - found.looks.level(0.05))
    assert (
        "seeds: 4, then up to 8 until every contrast of the answer is decided; judged at 4 and 8 seeds, with "
        f"intervals at {level:.4g} % for 95 % over all looks; at most 16 runs"
    ) in overview(found).lines
    assert experiment_record(found).looks.seeds == (4, 8)


def test_a_plan_continues_with_the_look_of_the_record_and_fresh_with_the_first(plan, monkeypatch):
    second = plan(SEQUENTIAL, look=8)
    assert second.design.seeds == tuple(range(1, 9))
    second.directory.mkdir(parents=True)
    record = experiment_record(second)
    files.write_json(second.directory / "experiment.json", record.to_json())
    again = plan(SEQUENTIAL)
    assert again.design.seeds == second.design.seeds
    assert experiment_record(again).looks == record.looks
    assert plan(SEQUENTIAL, fresh=True).design.seeds == (1, 2, 3, 4)
    monkeypatch.setattr("headtohead.planning.record.now", lambda: "2090-01-01T00:00:00Z")
    assert experiment_record(plan(SEQUENTIAL)).looks.since == record.looks.since
    more, fixed = plan(SEQUENTIAL.replace("at_most: 8", "at_most: 12")), plan(SEQUENTIAL, seeds=8)
    assert more.design.seeds == tuple(range(1, 13))
    for changed, looks in ((more, (6, 12)), (fixed, ())):
        assert (
            experiment_record(changed).looks.seeds,
            experiment_record(changed).looks.since[:4],
        ) == (looks, "2090")


def test_the_runs_of_the_second_look_include_those_of_the_first(plan):
    first, second = plan(SEQUENTIAL), plan(SEQUENTIAL, look=8)
    assert {run.run_hash for run in first.runs} < {run.run_hash for run in second.runs}
    fixed = plan(SEQUENTIAL.replace("{until: decided, at_most: 8, looks: 2}", "8"))
    assert {run.run_hash for run in second.runs} == {run.run_hash for run in fixed.runs}


def test_tuning_has_no_looks_and_seeds_that_no_look_reaches(plan):
    found = plan(f"{SEQUENTIAL}tune: {{train.lr: [0.003, 0.001]}}\n")
    sweep = found.tuning.plan
    assert sweep.looks is None
    assert min(sweep.design.seeds) > SequentialSeeds.model_fields["at_most"].metadata[1].le


def test_the_detectable_effect_is_that_of_the_last_look(plan):
    (sequential,) = powers_of(plan(SEQUENTIAL))
    (fixed,) = powers_of(plan(SEQUENTIAL, seeds=8))
    assert sequential.effect > fixed.effect
    assert experiment_record(plan(SEQUENTIAL, seeds=8)).looks is None
    assert sequential.heading.startswith(
        "what 8 seeds, the last look, show in 80 % of studies, by "
    )
    assert "last look" not in fixed.heading


def test_the_time_is_that_of_this_look_and_of_all_looks(plan):
    """The second look has as many more runs as the first."""
    found = plan(SEQUENTIAL)
    assert estimate_time(found).most_seconds == pytest.approx(2 * estimate_time(found).seconds)
    (line,) = [line for line in overview(found).lines if line.startswith("time: ")]
    assert " for this look, " in line
    fixed = plan(SEQUENTIAL, seeds=8)
    assert (
        estimate_time(fixed).most_seconds
        == estimate_time(fixed).seconds
        == pytest.approx(estimate_time(found).most_seconds)
    )

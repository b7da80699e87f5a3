import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from headtohead import files
from headtohead.config.builder import resolve
from headtohead.planning.compatibility import find_incompatibility
from headtohead.planning.notes import notes_of
from headtohead.planning.power import Power
from headtohead.planning.powers import powers_of
from headtohead.planning.record import experiment_record, run_record
from headtohead.planning.stacking import local_stacks
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import register
from headtohead_judge.noise import Noise
from made import plugin_of, refused

PAIR = "design: [{product: {positional: [sinusoidal, rotary]}}]\n"


def test_with_an_empty_runs_folder_all_runs_remain(plan):
    found = plan(PAIR, seeds=2)
    assert {run.state for run in found.runs} == {"MISSING"}
    assert not found.runs_root.exists()
    assert [[run.seed for run in stack] for stack in local_stacks(found)] == [[1, 2], [1, 2]]
    assert found.runs[0].directory == f"sinusoidal-s1-{found.runs[0].run_hash[:8]}"


def test_finished_runs_are_skipped_and_added_seeds_are_trained(plan, record):
    for run in plan(PAIR, seeds=2).runs:
        record(plan(PAIR, seeds=2), run)
    found = plan(PAIR, seeds=3)
    assert [(run.variant, run.seed) for run in found.remaining] == [
        ("sinusoidal", 3),
        ("rotary", 3),
    ]


def test_an_added_axis_renames_variants_and_keeps_their_runs(plan, record):
    first = plan(PAIR, seeds=1)
    for run in first.runs:
        record(first, run)
    found = plan(
        """
        design: [{product: {positional: [sinusoidal, rotary], model.norm: [pre, post]}}]
    """,
        seeds=1,
    )
    assert [run.variant for run in found.remaining] == ["sinusoidal-norm-post", "rotary-norm-post"]
    reused = next(run for run in found.runs if run.variant == "rotary-norm-pre")
    assert reused.directory == first.runs[1].directory
    assert reused.reused_from is None


@pytest.mark.parametrize(
    "state",
    ["DONE", "DIVERGED", "FAILED", "OOM", "TIMEOUT", "KILLED", "PLANNED", "RUNNING", "LEASED"],
)
def test_the_same_command_restarts_runs_by_state(plan, record, state):
    first = plan(seeds=1)
    record(first, first.runs[0], state)
    assert bool(plan(seeds=1).remaining) is (state in ("KILLED", "PLANNED"))


def test_a_result_of_another_experiment_is_reused_with_a_note(plan, record):
    first = plan(seeds=1)
    record(first, first.runs[0], experiment="earlier")
    found = plan(seeds=1)
    run = found.runs[0]
    assert (run.state, run.reused_from) == ("DONE", f"earlier/{run.directory}")
    assert found.remaining == []
    assert "1 run is reused from other experiments" in notes_of(found)
    assert experiment_record(found).to_json()["runs"][0]["reused_from"] == run.reused_from


def test_a_run_of_the_experiment_precedes_that_of_another_experiment(plan, record):
    first = plan(seeds=1)
    record(first, first.runs[0], experiment="earlier")
    record(first, first.runs[0], "FAILED", reason="why")
    run = plan(seeds=1).runs[0]
    assert (run.state, run.reason, run.reused_from) == ("FAILED", "why", None)


def test_runs_that_are_not_results_of_this_configuration_are_not_reused(plan, record):
    first = plan(seeds=3)
    unfinished, done, other_hash = first.runs
    record(first, unfinished, "RUNNING", experiment="earlier")
    record(first, done)
    record(first, other_hash, changes={"run_hash": other_hash.run_hash[:8] + "0" * 56})
    assert [run.state for run in plan(seeds=3).runs] == ["MISSING", "DONE", "MISSING"]
    assert [run.state for run in plan(seeds=3, fresh=True).runs] == ["MISSING"] * 3


def test_equal_hashes_with_different_configurations_are_an_error(plan, record):
    first = plan(seeds=1)
    config = first.variants[0].config.model_dump(mode="json")
    config["model"]["d_model"] = 9
    folder = record(first, first.runs[0], changes={"config": config})
    assert refused(plan, seeds=1) == (
        f"{folder / 'run.json'} has the run hash of the planned run but a different model.d_model; "
        "the file is damaged or was edited, move its directory away"
    )


def test_the_data_hash_is_compared_even_if_the_configurations_are_equal(plan, record):
    first = plan(seeds=2)
    record(first, first.runs[0])
    record(
        first, first.runs[1], changes={"data": dict(first.data.record) | {"data_hash": "0" * 64}}
    )
    assert "a different data_hash" in refused(plan, seeds=2)


def test_a_run_with_other_runtime_fields_is_reused(plan, record):
    first = plan(seeds=1)
    config = first.variants[0].config.model_dump(mode="json")
    config["train"]["num_microbatches"] = 4
    record(first, first.runs[0], changes={"config": config})
    assert plan(seeds=1).runs[0].state == "DONE"


def test_a_changed_entry_or_dependency_of_an_entry_makes_finished_runs_stale(plan, record):
    design = "design: [{one_at_a_time: {positional: [{name: randomised, of: alibi}, shape]}}]"
    first = plan(design, seeds=1)
    changed = ("attention", "split-heads"), ("positional", "alibi"), ("positional", "sinusoidal")
    for run, (_, name) in zip(first.runs, changed, strict=True):
        used = run_record(first, run).to_json()["plugins"]
        assert name in {plugin["name"] for plugin in used}
        old = [
            plugin | ({"source_sha256": "0" * 64} if plugin["name"] == name else {})
            for plugin in used
        ]
        record(first, run, changes={"plugins": old})
    found = plan(design, seeds=1)
    assert [run.stale for run in found.runs] == [
        (f"{family} '{name}' has changed",) for family, name in changed
    ]
    assert found.remaining == []
    assert any(note.startswith("3 finished runs are STALE: ") for note in notes_of(found))


def test_the_plan_marks_order_invariant_variants(plan):
    """A variant is order-invariant if no encoding, no style and no mask depends on positions."""
    found = plan(
        """
design:
  - product:
      positional: [sinusoidal, none, {encoder: none, decoder: sinusoidal, cross: none}]
      attention: [split-heads, random, {encoder: split-heads, decoder: random, cross: split-heads}]
  - zip:
      positional: [none, none, none, none]
      masking:
        - {encoder: causal, decoder: causal, cross: none}
        - {name: window, width: 2}
        - {encoder: [padding, causal], decoder: causal, cross: none}
        - padding-causal
      attention: [split-heads, split-heads, split-heads, {encoder: [split-heads, random], decoder: split-heads}]
""",
        seeds=1,
    )
    order_invariant = {variant.slug for variant in found.variants if variant.record.order_invariant}
    assert {slug.removesuffix("-padding-causal") for slug in order_invariant} == {
        "none-split-heads",
        "none-sinusoidal-none-split-heads",
        "none-split-heads-random-split-heads",
        "none-sinusoidal-none-split-heads-random-split-heads",
    }


def test_another_code_version_makes_finished_runs_stale(plan, record):
    first = plan(seeds=1)
    record(first, first.runs[0], changes={"versions": {"headtohead": "0.0.1"}})
    (item,) = plan(seeds=1).runs[0].stale
    assert item.startswith("headtohead 0.0.1, now ")


def test_heads_that_do_not_divide_the_width_are_refused_in_a_cell(plan):
    found = plan("design: [{product: {model.heads: [2, 3]}}]")
    assert [variant.slug for variant in found.variants] == ["heads-2"]
    (refused,) = found.design.excluded
    assert (refused.slug, refused.source) == ("heads-3", "incompatible")
    assert (
        refused.reason
        == "split-heads needs d_model to be a multiple of heads, got 8 and 3; change d_model to 6 or 9"
    )


@pytest.mark.usefixtures("own_registry")
def test_the_error_of_a_failing_plugin_names_its_distribution():
    class Broken(Positional):
        """Its check raises an error."""

        @classmethod
        def incompatible_with(cls, options, setting):
            return str(1 / 0)

    register(plugin_of(positional={"broken": Broken}))
    config = resolve({"train": {"epochs": 1}, "positional": "broken"})
    assert refused(find_incompatibility, config, {}).endswith(
        "(python): incompatible_with of positional 'broken' raised ZeroDivisionError: division by zero"
    )


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("result", ["", " ", 0, False])
def test_an_incompatibility_without_a_reason_is_refused(result):
    """Read as compatible, it would also skip the check of the maximum length, which this entry exceeds."""

    class Short(Positional):
        """A table of two positions."""

        @classmethod
        def limit(cls, options):
            return 2

        @classmethod
        def incompatible_with(cls, options, setting):
            return result

    register(plugin_of(positional={"short": Short}))
    config = resolve({"train": {"epochs": 1}, "positional": "short"})
    assert refused(find_incompatibility, config, {"source": 9, "target": 9}).endswith(
        f"incompatible_with of positional 'short' returned {result!r}; return a reason, or None if the entry is "
        "compatible"
    )


def test_the_null_pair_is_trained_once(plan):
    found = plan("design: [{product: {masking.decoder: [padding-causal, causal]}}]", seeds=2)
    assert [run.variant for run in found.runs] == ["masking.decoder-padding-causal"] * 2
    causal = found.by_slug["masking.decoder-causal"]
    assert causal.record.equal_to == "masking.decoder-padding-causal"
    assert found.runs_of("masking.decoder-causal") == found.runs_of(causal.record.equal_to)
    record = experiment_record(found).to_json()["variants"][1]
    assert record["equal_to"] == "masking.decoder-padding-causal"
    assert "allow the same keys" in record["equal_reason"]


def test_contrasts_are_counted_once_and_not_within_equal_variants(plan):
    found = plan("design: [{one_at_a_time: {masking.decoder: [causal], positional: [none]}}]")
    assert [(family.family, family.contrasts) for family in powers_of(found)] == [("variant", 1)]
    found = plan(
        "design: [{product: {masking.decoder: [padding-causal, causal], positional: [sinusoidal, none]}}]"
    )
    # none and none with a causal mask have the same runs; the axis of masks has no setting that differs.
    assert [(family.family, family.contrasts) for family in powers_of(found)] == [
        ("variant", 1),
        ("factor", 1),
    ]


def test_contrasts_of_the_same_runs_in_two_metrics_are_two_tests(plan):
    sides = "variant: {positional: none}, against: {positional: sinusoidal}"
    found = plan(f"""
        design: [{{one_at_a_time: {{positional: [none]}}}}]
        contrasts: [{{name: a, {sides}}}, {{name: b, metric: test/bleu, {sides}}}]
    """)
    assert [family.names for family in powers_of(found)] == [
        ("without positions",),
        ("a",),
        ("b",),
    ]


def test_the_power_of_a_contrast_is_that_of_its_own_metric(plan, record):
    """A contrast of two metrics of a variant is a test too, and each family is corrected for all its metrics."""
    design = """
        design: [{one_at_a_time: {positional: [rotary]}}]
        margin: {test/exact_match: 0.5, test/bleu: 5}
        contrasts:
          - {name: exact, variant: {positional: rotary}}
          - {name: bleu, variant: {positional: rotary}, metric: test/bleu}
          - {name: gap, variant: {}, metric: valid/loss, against_metric: test/loss}
    """
    first = plan(design, seeds=3)
    assert powers_of(first)[0].difference is None
    for run in first.runs:
        gain = 0.1 * run.seed if "rotary" in run.variant else 0.0
        metrics = {
            "test/exact_match": 0.2 + gain,
            "test/bleu": 20 + 50 * gain,
            "valid/loss": 1.0,
            "test/loss": 1.0,
        }
        metrics["test/loss"] += 0.2 * run.seed
        record(first, run, metrics=metrics)
    _, exact, bleu, gap = powers_of(plan(design, seeds=3))
    assert [family.sd for family in (exact, bleu, gap)] == pytest.approx([0.1, 5.0, 0.2])
    assert [family.margin for family in (exact, bleu, gap)] == [0.5, 5, None]
    assert exact.difference == pytest.approx(exact.effect * 0.1)
    assert exact.effect == bleu.effect == gap.effect
    assert exact.effect > Power("declared", ["exact"], 3, 2, "test/exact_match").effect
    assert bleu.lines[0] == "1 declared contrast in test/bleu: bleu"


def test_variants_may_differ_in_their_data(plan):
    found = plan("design: [{product: {data.size: [400, 300]}}]", seeds=1)
    assert len({variant.data_hash for variant in found.variants}) == 2
    assert found.data_of(found.runs_of("size-300")[0]).record["counts"]["train"] < 300
    assert "2 data sets, which differ in data.size; the plan describes the baseline's" in notes_of(
        found
    )


def test_the_power_of_an_interaction_is_that_of_the_tested_difference_of_differences(plan, record):
    design = "design: [{product: {positional: [sinusoidal, rotary], attention: [split-heads, independent-heads]}}]\n"
    first = plan(design, seeds=3)
    for run in first.runs:
        axes = first.by_slug[run.variant].record.axes
        effect = (
            [0.1, 0.2, 0.3][run.seed - 1]
            if tuple(axes.values()) == ("rotary", "split-heads")
            else 0.0
        )
        record(first, run, metrics={"test/exact_match": 0.5 + effect})
    (interaction,) = (
        family for family in powers_of(plan(design, seeds=3)) if family.family == "interaction"
    )
    assert interaction.sd == pytest.approx(0.1)


def test_families_are_compared_in_standard_deviations_of_a_run(plan, record):
    """The oracle are simulated scores: a contrast's standard deviation, in those of a score."""
    design = "design: [{product: {positional: [sinusoidal, rotary], attention: [split-heads, independent-heads]}}]\n"
    found = plan(design + "margin: 0.02\n", seeds=6)
    a, b, c, d = np.random.default_rng(1).normal(size=(4, 100_000))
    contrasts = {"variant": b - a, "factor": ((b - a) + (d - c)) / 2, "interaction": d - c - b + a}
    assert {family.family for family in powers_of(found)} == set(contrasts)
    for family in powers_of(found):
        assert family.effect_in_runs / family.effect == pytest.approx(
            contrasts[family.family].std(), rel=0.01
        )
        for each in (family, replace(family, variants=12)):
            most = 0.02 / each.effect_in_runs
            _, _, line, _ = each.lines
            expected = (
                f"the margin of 0.020, if sd is at most {most:.2g}; an sd of {2 * most:.2g} takes "
            )
            needed = int(line.strip().removeprefix(expected).removesuffix(" seeds"))
            fewer, enough = (replace(each, seeds=seeds).effect for seeds in (needed - 1, needed))
            assert enough <= each.effect / 2 < fewer
    assert powers_of(found)[1].names == (
        "rotary instead of sinusoidal",
        "independent instead of split heads",
    )
    assert powers_of(found)[1].lines[0].endswith("; ".join(powers_of(found)[1].names))


def test_a_plan_without_runs_states_the_noise_of_earlier_reports(plan, record, monkeypatch):
    rows = [
        Noise(
            report=report,
            data="toy-grammar",
            width=32,
            layers="1 + 1",
            steps=100,
            metric="test/exact_match",
            component="rotary",
            source="training seeds",
            sd=0.02,
            degrees=1000,
        )
        for report in "abc"
    ]
    monkeypatch.setattr("headtohead.planning.powers.read_noise", lambda: rows)
    first = plan(PAIR, seeds=3)
    (power,) = powers_of(first)
    stated = (
        f" sd: about {power.effect_in_runs * 0.02:.3f}, because sd was 0.020 in 3 reports of "
        "headtohead on toy-grammar (80 % interval of sd: 0.019 to 0.021)"
    )
    assert stated in power.lines[1]
    for run in first.runs:
        record(first, run, metrics={"test/exact_match": 0.01 * len(run.variant) * run.seed})
    (measured,) = powers_of(plan(PAIR, seeds=3))
    assert measured.lines[1].endswith(" for the median contrast of the finished runs")
    monkeypatch.setattr("headtohead.planning.powers.read_noise", list)
    (unknown,) = powers_of(plan(PAIR, seeds=2))
    assert unknown.expected is None


def test_a_plan_states_how_many_seeds_the_equivalence_of_equal_variants_takes():
    margin = 0.02
    power = Power("variant", ["a"], 6, 2, "test/exact_match", margin=margin, sd=0.014)
    needed = int(
        re.search(r"equivalence to within the margin takes (\d+) seeds", power.lines[3])[1]
    )
    shares = []
    for seeds in (needed - 1, needed):
        draws = np.random.default_rng(3).normal(0, 0.014, size=(20_000, seeds))
        half = scipy.stats.t.ppf(0.975, seeds - 1) * draws.std(axis=1, ddof=1) / seeds**0.5
        shares.append(np.mean(np.abs(draws.mean(axis=1)) + half < margin))
    assert shares[0] < 0.8 < shares[1] + 0.01
    unknown = replace(power, sd=None).lines[3]
    sd = margin / power.effect_in_runs
    assert unknown.endswith(f" seeds if sd is {sd:.2g}")


def test_probes_come_from_the_file_or_from_the_test_set(plan):
    found = plan("probes: [the cat sleeps, {source: a dog, target: un chien}]", seeds=1)
    assert [(probe.source, probe.target) for probe in found.probes] == [
        ("the cat sleeps", None),
        ("a dog", "un chien"),
    ]
    default = plan(seeds=1)
    assert {probe.source for probe in default.probes} <= set(
        default.data.splits["test"].source_text
    )


def test_a_plan_of_many_runs_reads_each_directory_once(plan, record, monkeypatch):
    first = plan(PAIR, seeds=5)
    for run in first.runs:
        record(first, run)
    seen = []
    read = files.read_bytes
    monkeypatch.setattr(
        files, "read_bytes", lambda path, *limit: seen.append(path) or read(path, *limit)
    )
    plan(PAIR, seeds=5)
    assert len(seen) == len(set(seen)) == 3 * len(first.runs)


def test_a_margin_keeps_its_date_until_it_changes(plan, monkeypatch):
    def stored(text, date):
        monkeypatch.setattr("headtohead.planning.record.now", lambda: date)
        planned = plan(text)
        planned.directory.mkdir(parents=True, exist_ok=True)
        files.write_json(
            planned.directory / "experiment.json", experiment_record(planned).to_json()
        )
        return experiment_record(planned).to_json()["margins"]

    first, second = "2026-01-05T10:00:00Z", "2026-01-06T10:00:00Z"
    number = "margin: 0.02\nseeds: 1"
    mapping = "margin: {test/exact_match: 0.02, test/bleu: 1}\nseeds: 1"
    assert stored(number, first) == {
        "test/exact_match": {"value": 0.02, "since": first, "late": False}
    }
    assert stored(mapping, second) == {
        "test/exact_match": {"value": 0.02, "since": first, "late": False},
        "test/bleu": {"value": 1.0, "since": second, "late": False},
    }
    assert stored(number.replace("0.02", "0.03"), second) == {
        "test/exact_match": {"value": 0.03, "since": second, "late": False}
    }
    assert stored("seeds: 1", second) == {}


@pytest.mark.parametrize(
    ("overrides", "seeds", "late"),
    [([], 1, True), (["train.lr=0.004"], 1, True), ([], [7], False), (["data.size=300"], 1, False)],
    ids=["same", "other lr", "other seeds", "other data"],
)
def test_a_margin_is_late_if_a_result_with_the_same_seeds_and_data_exists(
    plan, record, overrides, seeds, late
):
    first = plan("seeds: 1")
    record(first, first.runs[0])
    margins = experiment_record(plan(f"margin: 0.02\nseeds: {seeds}", *overrides)).margins
    assert margins["test/exact_match"].late is late


ROTARY = "contrasts: [{name: Rotary, variant: {positional: rotary}}]\n"
AXIS = "design: [{product: {positional: [none, rotary]}}]\n"


@pytest.mark.parametrize(
    ("first", "changed", "fields"),
    [
        (AXIS + "seeds: 1", AXIS + "seeds: 2", {"seeds"}),
        (AXIS + "seeds: 1", AXIS + "seeds: [7]", {"seeds"}),
        (AXIS + "seeds: 1", AXIS + "seeds: 1\ndescription: Another.", set()),
        (AXIS + "seeds: 1", AXIS + ROTARY + "seeds: 1", {"contrasts"}),
        (AXIS + ROTARY + "seeds: 1", AXIS + ROTARY.replace("Rotary", "Other") + "seeds: 1", set()),
        (AXIS + "seeds: 1", AXIS + "seeds: 1\nmetrics: {primary: test/bleu}", {"metrics.primary"}),
        (AXIS + "seeds: 1", AXIS.replace(", rotary", "") + "seeds: 1", {"design"}),
        (
            AXIS + ROTARY + "seeds: 1",
            AXIS.replace("]}", "], norm: [layernorm, rmsnorm]}") + ROTARY + "seeds: 1",
            {"design"},
        ),
    ],
    ids=["seeds", "other seeds", "description", "contrast", "name", "metric", "design", "axis"],
)
@pytest.mark.parametrize("has_result", [True, False])
def test_a_part_of_the_question_that_changes_after_a_result_is_recorded(
    plan, record, first, changed, fields, has_result
):
    planned = plan(first)
    planned.directory.mkdir(parents=True)
    files.write_json(planned.directory / "experiment.json", experiment_record(planned).to_json())
    if has_result:
        record(planned, planned.runs[0])
    again = experiment_record(plan(changed))
    assert {*again.late_fields} == (fields if has_result else set())
    files.write_json(planned.directory / "experiment.json", again.to_json())
    assert experiment_record(plan(changed)).late_fields == again.late_fields


def test_a_question_about_results_that_exist_is_late_as_a_whole(plan, record):
    first = plan(AXIS + "seeds: 1")
    for number, run in enumerate(first.runs):
        assert experiment_record(plan(AXIS + "seeds: 1")).late_fields == {}, number
        record(first, run, experiment="earlier")
    found = experiment_record(plan(AXIS + "seeds: 1\nmetrics: {primary: test/bleu}"))
    assert {*found.late_fields} == {"the whole question"}


def test_the_record_describes_the_entries_in_which_variants_differ(plan):
    entries = experiment_record(
        plan("design: [{product: {positional: [none, rotary]}}]", seeds=1)
    ).entries
    assert {(entry.family, entry.name) for entry in entries} == {
        ("positional", "sinusoidal"),
        ("positional", "none"),
        ("positional", "rotary"),
    }
    assert all(entry.summary for entry in entries)
    assert experiment_record(plan("", seeds=1)).entries == ()
    entries = plan(
        "design: [{one_at_a_time: {attention: [{name: combined, first: smear, second: gated}]}}]",
        seeds=1,
    )
    names = [entry.name for entry in experiment_record(entries).entries]
    assert names == ["split-heads", "combined", "smear", "gated"]


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("hook", ["mix_embeddings", "mix_tokens", "project", "embed_values"])
def test_a_style_with_a_hook_of_self_attention_is_excluded_from_cross_attention(hook):
    style = type("Own", (Attention,), {hook: lambda self, *arguments: arguments[0]})
    register(plugin_of(attention={"own": style}))
    reasons = [
        find_incompatibility(resolve({"train": {"epochs": 1}, "attention": attention}), {})
        for attention in ("own", {"cross": "own"}, {"encoder": "own", "decoder": "own"})
    ]
    assert reasons == ["own is defined for self-attention; use another attention.cross"] * 2 + [
        None
    ]

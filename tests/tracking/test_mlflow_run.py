"""One run directory is one MLflow run, whatever happens to the shipper or to the directory."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from headtohead.storage.leases import Lease
from headtohead.tracking.shipping import ship
from headtohead.tracking.study import TrackedRun, TrackedStudy
from headtohead_mlflow.colours import INVISIBLE
from made import case_table
from made.fake_study import REASONS, Study, edit, record_checksums, write_study

MakeExperiment = Callable[..., Path]
ONE_VARIANT = {"positional": ["rotary"], "masking": ["causal"]}


@dataclass
class Place:
    """One experiment with one run, and the store it goes to."""

    folder: Path
    uri: str

    def ship(self) -> None:
        assert ship(self.folder, self.uri).failures == []

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.uri)

    @property
    def run(self) -> TrackedRun:
        return TrackedStudy.read(self.folder).runs()[0]

    def shipped(self) -> Run:
        experiment = self.client.get_experiment_by_name("quickstart")
        (run,) = self.client.search_runs([experiment.experiment_id])
        return run

    def artifact(self, name: str) -> Path:
        return Path(self.client.download_artifacts(self.shipped().info.run_id, name))


@pytest.fixture
def place(make_experiment: MakeExperiment, store_uri: str) -> Place:
    return Place(make_experiment(axes=ONE_VARIANT), store_uri)


@pytest.fixture
def shipped(place: Place) -> Place:
    place.ship()
    return place


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory, store_template: Path) -> Place:
    """A run that was shipped, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("delivered")
    shutil.copyfile(store_template, folder / "mlflow.db")
    runs = write_study(folder / "runs", Study(axes=ONE_VARIANT, seeds=(1,), weights=True))
    place = Place(runs, f"sqlite:///{folder}/mlflow.db")
    place.ship()
    return place


def test_axes_and_configuration_are_parameters_and_runtime_fields_are_not(delivered: Place) -> None:
    params = delivered.shipped().data.params
    assert {"positional": "rotary", "masking": "causal", "seed": "1"}.items() <= params.items()
    assert params["attention"] == "split-heads"
    assert params["model.d_model"] == "16"
    assert params["train.betas"] == "0.9, 0.98"
    assert (
        not {"train.backend", "train.checkpoint_seconds", "train.num_microbatches"} & params.keys()
    )


def test_name_times_and_tags_describe_the_run_and_how_to_repeat_it(delivered: Place) -> None:
    info, tags = delivered.shipped().info, delivered.shipped().data.tags
    assert info.run_name == "rotary, a causal mask · s1"
    assert (info.status, info.start_time, info.end_time) == (
        "FINISHED",
        1767607201000,
        1767607215000,
    )
    assert tags["h2h.run_hash"] == delivered.run.run_hash
    assert (tags["h2h.state"], tags["h2h.seed"]) == ("DONE", "1")
    assert tags["h2h.variant"].rstrip(INVISIBLE) == "rotary, a causal mask (baseline)"
    assert delivered.shipped().data.params["variant"] == "rotary, a causal mask"
    assert tags["mlflow.source.git.commit"] == "0f1e2d3c4b5a69788796a5b4c3d2e1f001122334"
    assert f"`h2h reproduce quickstart/{delivered.run.path.name}`" in tags["mlflow.note.content"]


def test_histories_and_final_values_arrive(delivered: Place) -> None:
    run = delivered.shipped()
    history = delivered.client.get_metric_history(run.info.run_id, "train/loss")
    assert [metric.step for metric in history] == list(range(50, 901, 50))
    assert history[0].timestamp == 1700000000833
    results = json.loads((delivered.run.path / "results.json").read_text())
    assert {key: run.data.metrics[key] for key in results["metrics"]} == results["metrics"]
    counts = delivered.run.record.counts
    costs = {name: run.data.metrics[f"cost/{name}"] for name in ("parameters", "flops_per_token")}
    assert costs == {"parameters": counts.total, "flops_per_token": counts.flops_per_token}
    assert len(run.data.metrics) < 30
    assert not any(" " in name for name in run.data.metrics)


def test_the_run_directory_arrives_unchanged_and_its_maps_as_images(delivered: Place) -> None:
    maps = [(role, probe) for role in ("cross", "decoder", "encoder") for probe in (0, 1)]
    names = {
        path.name.partition("+timestamp")[0] for path in delivered.artifact("images").iterdir()
    }
    note = delivered.shipped().data.tags["mlflow.note.content"]
    shown = re.findall(
        r"!\[weights/attention-\w+\]\(get-artifact\?path=(\S+)&run_uuid=(\w+)\)", note
    )
    assert [delivered.artifact(unquote(path)).suffix for path, run_id in shown] == [".png"] * 3
    assert {run_id for path, run_id in shown} == {delivered.shipped().info.run_id}
    assert names == {f"weights~attention-{role}+step+{probe}" for role, probe in maps}
    assert min(names) > "valid"
    assert delivered.shipped().data.tags["mlflow.loggedImages"] == "True"
    there = delivered.artifact("run")
    for path in there.rglob("*"):
        if path.is_file():
            original = delivered.run.path / path.relative_to(there)
            assert path.read_bytes() == original.read_bytes()
    assert (there / "attention/maps.safetensors").is_file()


def test_translations_are_a_table_that_mlflow_reads_back(
    delivered: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MLflow's own reader of tables looks for the run in the store of the environment.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", delivered.uri)
    experiment = delivered.client.get_experiment_by_name("quickstart")
    table = delivered.client.load_table(experiment.experiment_id, "translations.json")
    assert list(table.columns) == ["source", "references", "hypothesis", "exact"]
    assert len(table) == 250
    assert set(table["exact"]) == {0, 1}


@pytest.mark.slow
def test_a_changed_run_directory_updates_the_same_run_and_nothing_twice(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    shipped = Place(make_experiment(axes=ONE_VARIANT, maps=True), store_uri)
    shipped.ship()
    before = shipped.shipped()
    results = json.loads((shipped.run.path / "results.json").read_text())
    edit(shipped.run.path / "results.json", metrics=results["metrics"] | {"test/bleu": 12.5})
    masked = {"heads/cross/only-one/loss": 0.25}
    heads = {"format": 1, "split": "test", "whole": {"loss": 1.0}, "heads": [], "metrics": masked}
    (shipped.run.path / "heads.json").write_text(json.dumps(heads))
    record_checksums(shipped.run.path)
    shipped.ship()
    after = shipped.shipped()
    assert after.info.run_id == before.info.run_id
    assert after.data.metrics == before.data.metrics | {"test/bleu": 12.5} | masked
    assert json.loads(shipped.artifact("run/heads.json").read_text()) == heads
    assert len(list(shipped.artifact("images").iterdir())) == 2 * 3 * 2
    assert ship(shipped.folder, shipped.uri).unchanged == 1


def test_a_training_that_ends_earlier_replaces_the_mlflow_run_of_the_earlier_training(
    shipped: Place,
) -> None:
    metrics = shipped.run.path / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:9]))
    edit(shipped.run.path / "run.json", created="2026-02-01T00:00:00Z")
    record_checksums(shipped.run.path)
    shipped.ship()
    history = shipped.client.get_metric_history(shipped.shipped().info.run_id, "valid/loss")
    assert (history[-1].step, history[-1].value) == (450, shipped.run.final_metrics["valid/loss"])


@case_table(
    ("state", "status"),
    [
        ("DIVERGED", "FAILED"),
        ("FAILED", "FAILED"),
        ("OOM", "FAILED"),
        ("TIMEOUT", "FAILED"),
        ("KILLED", "KILLED"),
    ],
    default=1,
)
def test_every_end_has_its_status_and_its_reason(
    make_experiment: MakeExperiment, store_uri: str, state: str, status: str
) -> None:
    folder = make_experiment(axes=ONE_VARIANT, states={("rotary-causal", 1): state})
    place = Place(folder, store_uri)
    place.ship()
    run = place.shipped()
    assert (run.info.status, run.data.tags["h2h.state"]) == (status, state)
    assert run.data.tags.get("h2h.reason") == REASONS.get(state)
    assert run.info.end_time == 1767607215000
    assert ship(folder, store_uri).unchanged == 1


def _die_while_training(place: Place) -> None:
    """Keep the first half of the histories, as a process that died while it trained."""
    metrics = place.run.path / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:9]))
    (place.run.path / "results.json").unlink()
    edit(place.run.path / "status.json", state="RUNNING", ended=None)


def _die_while_scoring(place: Place) -> None:
    """Have all histories, but no results, whose values can differ from the last ones."""
    (place.run.path / "results.json").unlink()
    edit(place.run.path / "status.json", state="RUNNING", ended=None, files={})


def _die_while_finishing(place: Place) -> None:
    """Have results but no final state; the next attempt measures its own times."""
    results = json.loads((place.run.path / "results.json").read_text())
    results["metrics"]["system/wall_seconds"] = 1.0
    edit(place.run.path / "results.json", **results)
    edit(place.run.path / "status.json", state="RUNNING", ended=None, files={})


@case_table("before", [_die_while_scoring, _die_while_training, _die_while_finishing], default=1)
def test_no_step_is_logged_twice_after_a_kill(
    make_experiment: MakeExperiment, store_uri: str, tmp_path: Path, before: Callable[[Place], None]
) -> None:
    place = Place(make_experiment(axes=ONE_VARIANT), store_uri)
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(place.run.path, undisturbed)
    before(place)
    place.ship()
    shutil.copytree(undisturbed, place.run.path, dirs_exist_ok=True)
    place.ship()
    run = place.shipped()
    assert run.info.status == "FINISHED"
    results = json.loads((undisturbed / "results.json").read_text())["metrics"]
    assert (
        run.data.metrics.items()
        >= {key: value for key, value in results.items() if value is not None}.items()
    )
    for (
        key
    ) in run.data.metrics:  # the result of valid/loss differs from the last point of its history
        steps = [metric.step for metric in place.client.get_metric_history(run.info.run_id, key)]
        assert len(steps) == len(set(steps)), key
        assert len(steps) == 18 or key != "train/loss"


@pytest.mark.slow
def test_a_run_whose_process_is_gone_does_not_run_for_ever(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folder = make_experiment(axes=ONE_VARIANT, states={("rotary-causal", 1): "RUNNING"})
    place = Place(folder, store_uri)
    with Lease(place.run.path):
        place.ship()
    place.ship()
    swept = place.shipped()
    assert swept.info.status == "KILLED"
    assert swept.info.end_time is not None
    assert "is gone" in swept.data.tags["h2h.reason"]
    with Lease(place.run.path):
        place.ship()
    resumed = place.shipped()
    assert resumed.info.status == "RUNNING"
    assert "h2h.reason" not in resumed.data.tags


@pytest.mark.slow
def test_a_reused_run_is_shown_in_both_studies_with_its_weights_in_the_first(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    first = Place(make_experiment(axes=ONE_VARIANT), store_uri)
    second = make_experiment(name="extended", axes=ONE_VARIANT)
    plan = json.loads((second / "experiment.json").read_text())
    own = second / plan["runs"][0]["directory"]
    plan["runs"][0] |= {
        "reused_from": f"quickstart/{first.run.path.name}",
        "run_hash": first.run.run_hash,
    }
    (second / "experiment.json").write_text(json.dumps(plan))
    for path in sorted(own.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    first.ship()
    assert ship(second, store_uri).shipped == 1
    experiment = first.client.get_experiment_by_name("extended")
    (run,) = first.client.search_runs([experiment.experiment_id])
    assert run.data.tags["h2h.reused_from"] == f"quickstart/{first.run.path.name}"
    assert run.data.tags["h2h.run_hash"] == first.run.run_hash
    for owner, has_weights in ((run, False), (first.shipped(), True)):
        names = {file.path for file in first.client.list_artifacts(owner.info.run_id, "run")}
        assert ("run/checkpoint.safetensors" in names) is has_weights


@case_table("name", ["run.json", "results.json", "attention/maps.safetensors"], default=1)
def test_a_damaged_run_directory_is_named_and_keeps_no_other_back(
    make_experiment: MakeExperiment, store_uri: str, name: str
) -> None:
    folder = make_experiment(seeds=(1, 2), axes=ONE_VARIANT, maps=True)
    damaged = TrackedStudy.read(folder).runs()[0].path
    (damaged / name).write_text("{")
    report = ship(folder, store_uri)
    assert report.shipped == 1
    assert [failure.partition(":")[0] for failure in report.failures] == [damaged.name]
    assert not report.complete

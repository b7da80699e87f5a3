"""Metrics are those of the dataset: names, defaults and directions are checked before anything is trained."""

import csv
import json
import math

import pytest

from headtohead import api
from headtohead.data.metrics import TRANSLATION, task_metrics
from headtohead.planning.design import expand
from headtohead.planning.metrics import reported_metrics
from headtohead.plugins.registry import find_dataset
from headtohead.schema.metric import Metric, measured
from headtohead.schema.roles import ROLES
from headtohead.storage.metrics import decimals, find, higher_is_better, readable, show, span
from made import refused

ERRORS = Metric("errors", "wrong symbols", (0.0, 9.0), higher_is_better=False, decimals=2)


@pytest.mark.usefixtures("without_figures")
def test_the_measured_metrics_are_those_of_a_real_run(tmp_path):
    file = tmp_path / "one.yaml"
    file.write_text(
        "question: Which?\nseeds: 1\nbase:\n  data: {dataset: toy-grammar, size: 200}\n"
        "  model: {d_model: 8, heads: 1, layers: 1, d_ff: 8}\n  train: {steps: 4}\n"
        "metrics: {primary: test/log_error}\nmargin: {test/log_error: 0.22}\n"
    )
    api.run(file, runs=tmp_path / "runs", reports=tmp_path / "reports", tracking=False)
    results = next((tmp_path / "runs").glob("*/*/results.json"))
    metrics = json.loads(results.read_text())["metrics"]
    assert set(metrics) - {"train/lr"} == set(measured(TRANSLATION, ROLES))
    (row,) = csv.DictReader((tmp_path / "reports" / "one" / "results.csv").read_text().splitlines())
    assert float(row["test/log_error"]) == pytest.approx(math.log(1 - metrics["test/exact_match"]))


@pytest.mark.parametrize(("hits", "errors"), [(0, 20), (13, 7), (19, 1), (20, 0.5)])
def test_the_log_error_rate_of_no_errors_is_that_of_half_an_error(hits, errors):
    assert find("test/log_error").pool([hits, 20]) == pytest.approx(math.log(errors / 20))
    assert not higher_is_better("test/log_error")


def test_a_dataset_declares_its_metrics_and_the_first_is_the_default(load, registry, monkeypatch):
    monkeypatch.setattr(find_dataset("copy"), "metrics", (ERRORS,))
    loaded = load("question: Which?\nbase: {data: {dataset: copy}, train: {epochs: 1}}\n")
    found = expand(loaded)
    reported = reported_metrics(loaded, found.variant(found.baseline).config)
    assert (reported.primary, reported.report) == ("test/errors", ("valid/loss",))
    assert not higher_is_better("test/errors")
    assert (readable("test/errors"), span("test/errors"), decimals("test/errors")) == (
        "wrong symbols",
        (0.0, 9.0),
        2,
    )


@pytest.mark.parametrize(
    ("value", "metric", "signed", "text"),
    [
        (-0.01, "test/bleu", True, "−0.01"),
        (0.01, "test/bleu", False, "0.01"),
        (0.0003, "test/exact_match", True, "+0.0003"),
        (3e-17, "test/exact_match", False, "0.000"),
        (0.04, "system/step_ms", True, "+0.04"),
    ],
)
def test_small_values_are_printed_without_false_digits(value, metric, signed, text):
    assert show(value, metric, signed=signed) == text


def test_an_unknown_metric_has_no_direction():
    assert "no dataset declares" in refused(higher_is_better, "test/unheard_of")


def test_different_metrics_of_one_name_are_refused(registry, monkeypatch):
    monkeypatch.setattr(find_dataset("copy"), "metrics", (ERRORS,))
    monkeypatch.setattr(find_dataset("sort"), "metrics", (Metric("errors"),))
    message = "the datasets copy and sort declare different metrics 'errors'"
    assert message in refused(higher_is_better, "test/errors")


@pytest.mark.parametrize("name", ["bleu", "loss", "distance", "a/b", "x_unpadded"])
def test_a_dataset_cannot_use_a_name_of_headtohead(name, registry, monkeypatch):
    monkeypatch.setattr(find_dataset("copy"), "metrics", (Metric(name),))
    assert f"declares a metric '{name}', a name of headtohead" in refused(task_metrics, "copy")
    assert task_metrics("sort") == TRANSLATION

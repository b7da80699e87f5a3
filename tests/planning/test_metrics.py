"""A metric that no run measures is refused before anything is trained."""

from pathlib import Path

import pytest

from headtohead.config.loading import load_text
from headtohead.errors import HeadToHeadError
from headtohead.schema.experiment_file import MEASURED


@pytest.mark.parametrize("line", ["primary: test/blue", "report: [valid/loss, test/blue]"])
def test_an_unknown_metric_is_one_line_with_the_nearest_name(line: str) -> None:
    text = f"question: Which?\nmetrics: {{{line}}}\n"
    wanted = r"x\.yaml:2: metrics\..*unknown metric 'test/blue'; did you mean 'test/bleu'\?"
    with pytest.raises(HeadToHeadError, match=wanted):
        load_text(text, Path("x.yaml"))


@pytest.mark.usefixtures("without_figures")
def test_every_metric_that_is_named_is_measured(tmp_path: Path) -> None:
    """The list and the results of a real run agree."""
    import json

    from headtohead import api

    file = tmp_path / "one.yaml"
    file.write_text(
        "question: Which?\nseeds: 1\nbase:\n  data: {dataset: toy-grammar, size: 200}\n"
        "  model: {d_model: 8, heads: 1, layers: 1, d_ff: 8}\n  train: {steps: 4}\n"
    )
    api.run(file, runs=tmp_path / "runs", reports=tmp_path / "reports", tracking=False)
    results = next((tmp_path / "runs").glob("*/*/results.json"))
    measured = set(json.loads(results.read_text())["metrics"]) - {"train/lr"}
    assert measured == set(MEASURED)


@pytest.mark.parametrize("name", ["attention/encoder/entropy", "attention/cross/distance"])
def test_a_metric_without_a_better_direction_is_reported_and_not_tested(name: str) -> None:
    text = "question: Which?\nmetrics: {%s}\n"
    assert load_text(text % f"report: [{name}]", Path("x.yaml")).file.metrics.report == (name,)
    wanted = f"x.yaml:2: metrics.primary: '{name}' is neither better high nor better low; list it in metrics.report"
    with pytest.raises(HeadToHeadError, match=wanted):
        load_text(text % f"primary: {name}", Path("x.yaml"))

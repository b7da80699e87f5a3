"""The sample of docs/how-to/mlflow.md runs, and its views, states and pictures exist."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead.tracking.mlflow_logger import STATUS
from headtohead.tracking.study import TrackedStudy
from headtohead.tracking.view import views

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "mlflow.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_python_sample_runs(
    make_experiment: Callable[..., Path],
    tmp_path: Path,
    store_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_experiment(axes={"positional": ["rotary"]})
    monkeypatch.chdir(tmp_path)
    sample = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    exec(compile(sample, "docs/how-to/mlflow.md", "exec"), {})
    assert capsys.readouterr().out == "quickstart: 1 logged, 0 unchanged\n"


def test_views_states_and_pictures_of_the_page_exist(make_experiment: Callable[..., Path]) -> None:
    study = TrackedStudy.read(make_experiment(axes={"positional": ["rotary"]}))
    for value in views(study.record).values():
        name = json.loads(value)["name"].partition(":")[0]
        assert f"| {name.replace('positional', '*axis*')} |" in PAGE
    for state in STATUS.keys() - {"PLANNED", "LEASED"}:
        assert f"| {state} |" in PAGE
    pictures = re.findall(r"\]\(\.\./(images/[^)]+)\)", PAGE)
    assert pictures
    assert all((DOCS / picture).is_file() for picture in pictures)

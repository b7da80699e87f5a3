"""The notebook of the docs runs in a real Jupyter kernel, and its cells show what they promise."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "how-to" / "compare.ipynb"
MOST_SECONDS = 60
MOST_BYTES = 100_000

LAST = 'compared["sinusoidal · masking.decoder padding"].attention'

Outputs = list[dict[str, Any]]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run every cell in a kernel of its own, in an empty folder."""
    folder = tmp_path_factory.mktemp("compare")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2H_CACHE", str(folder / "cache"))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        for name in ("H2H_RUNS", "H2H_REPORTS", "MLFLOW_TRACKING_URI"):
            patch.delenv(name, raising=False)
        client = NotebookClient(
            notebook,
            timeout=240,
            kernel_name="python3",
            allow_errors=True,
            resources={"metadata": {"path": str(folder)}},
        )
        before = time.monotonic()
        client.execute(env=dict(os.environ))
    notebook.metadata["seconds"] = time.monotonic() - before
    return notebook


def outputs(notebook: Any, call: str) -> Outputs:
    """Return the outputs of the cell that ends with this name, or with a call of it."""
    found = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.source.splitlines()[-1].partition("(")[0] == call
    ]
    assert len(found) == 1, call
    shown: Outputs = found[0].outputs
    return shown


def html(notebook: Any, call: str) -> str:
    (shown,) = (one for one in outputs(notebook, call) if "data" in one)
    text: str = shown["data"]["text/html"]
    return text


@pytest.mark.slow
def test_no_cell_fails_or_warns(executed: Any) -> None:
    loud = [
        one
        for cell in executed.cells
        if cell.cell_type == "code"
        for one in cell.outputs
        if one.output_type == "error" or one.get("name") == "stderr"
    ]
    assert loud == []


@pytest.mark.slow
def test_it_takes_less_than_a_minute(executed: Any) -> None:
    seconds = executed.metadata["seconds"]
    if seconds >= MOST_SECONDS and os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        pytest.skip(f"took {seconds:.0f} s on a machine that is busy with other work")
    assert seconds < MOST_SECONDS


def test_it_is_kept_small_and_without_outputs() -> None:
    assert NOTEBOOK.stat().st_size < MOST_BYTES
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(cell.outputs == [] for cell in cells if cell.cell_type == "code")


@pytest.mark.slow
def test_the_checkpoint_is_a_run_that_shows_its_choices_and_its_faults(executed: Any) -> None:
    shown = html(executed, "mine")
    assert "<table>" in shown
    assert "split-heads" in shown
    assert "words dropped" in shown


@pytest.mark.slow
def test_the_loaded_run_computes_what_the_module_computes(executed: Any) -> None:
    (shown,) = outputs(executed, "float")
    assert 0 <= float(shown["data"]["text/plain"]) < 1e-4


@pytest.mark.slow
def test_translations_are_a_list_of_sentences(executed: Any) -> None:
    (shown,) = outputs(executed, "mine.translate")
    translations = eval(shown["data"]["text/plain"])
    assert len(translations) == 4
    assert translations[0] == "Je t’aime"


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["mine.attention", LAST])
def test_attention_maps_are_pictures_with_tokens_as_labels(executed: Any, cell: str) -> None:
    shown = html(executed, cell)
    assert shown.count("<svg") == 3
    assert all(f">{token}<" in shown for token in ("dog", "walks", "fast", "chien"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("h2h.plan", ["3 variants × 3 seeds = 9", "(baseline)", "FLOPs/token", "words dropped"]),
        ("study", ["exact match", "falls from", "words dropped", "every variant", "<svg"]),
        ("runs", ["falls from", "future not masked", "9 runs; .columns", "test/token_accuracy"]),
        ("pd.DataFrame", ["mine", "sinusoidal", "none", "padding", "I love you"]),
    ],
)
def test_plan_study_and_results_are_tables(executed: Any, cell: str, words: list[str]) -> None:
    shown = html(executed, cell)
    assert "<table" in shown
    assert [word for word in words if word not in shown] == []

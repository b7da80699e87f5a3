"""The notebooks of the docs run in a real Jupyter kernel, and their cells have the documented outputs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
NOTEBOOKS = ("compare", "python")
MOST_SECONDS = 60
MOST_BYTES = 200_000

LAST = 'compared["sinusoidal · masking.decoder padding"].attention'

Outputs = list[dict[str, Any]]


@pytest.fixture(scope="module")
def execute(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return an executed notebook of this name: every cell in a kernel of its own, in an empty folder."""
    finished: dict[str, Any] = {}

    def execute(name: str) -> Any:
        if name not in finished:
            finished[name] = run(name, tmp_path_factory.mktemp(name))
        return finished[name]

    return execute


def run(name: str, folder: Path) -> Any:
    notebook = nbformat.read(HOW_TO / f"{name}.ipynb", as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2H_CACHE", str(folder / "cache"))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        for variable in ("H2H_RUNS", "H2H_REPORTS", "MLFLOW_TRACKING_URI"):
            patch.delenv(variable, raising=False)
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


@pytest.fixture
def executed(execute: Callable[[str], Any]) -> Any:
    return execute("compare")


@pytest.fixture
def python(execute: Callable[[str], Any]) -> Any:
    return execute("python")


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
    (shown,) = (output for output in outputs(notebook, call) if "data" in output)
    text: str = shown["data"]["text/html"]
    return text


def plain(notebook: Any, call: str) -> str:
    (shown,) = outputs(notebook, call)
    text: str = shown["data"]["text/plain"]
    return text


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_cell_fails_or_warns(execute: Callable[[str], Any], name: str) -> None:
    loud = [
        output
        for cell in execute(name).cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert loud == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_takes_less_than_a_minute(execute: Callable[[str], Any], name: str) -> None:
    seconds = execute(name).metadata["seconds"]
    if seconds >= MOST_SECONDS and os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        pytest.skip(f"took {seconds:.0f} s on a machine that is busy with other work")
    assert seconds < MOST_SECONDS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stored_outputs_are_small_and_free_of_errors_times_and_folders(name: str) -> None:
    path = HOW_TO / f"{name}.ipynb"
    assert path.stat().st_size < MOST_BYTES
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/tmp/|/home/|/root/|/work/|iopub", text)
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(output.output_type != "error" for cell in cells for output in cell.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stored_outputs_are_of_the_kinds_of_a_new_execution(execute: Callable[[str], Any], name: str) -> None:
    def kinds(notebook: Any) -> list[tuple[str, ...]]:
        return [
            tuple(kind for output in cell.outputs for kind in sorted(output.get("data", [output.get("name")])))
            for cell in notebook.cells
            if cell.cell_type == "code"
        ]

    assert kinds(nbformat.read(HOW_TO / f"{name}.ipynb", as_version=4)) == kinds(execute(name))


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


@pytest.mark.slow
def test_a_loaded_run_encodes_translates_and_computes_logits(python: Any) -> None:
    shown = eval(plain(python, "}"))
    assert shown["tokens"] == ["the", "cat", "sees", "a", "dog", "<eos>"]
    assert (shown["text"], shown["special ids"]["eos"]) == ("the cat sees a dog", 3)
    translations = eval(plain(python, "rotary.translate"))
    predicted = eval(plain(python, "tokenizer.tokens"))
    assert " ".join(predicted[: predicted.index("<eos>")]) == translations[0]
    assert plain(python, "own.shape, torch.equal").endswith(", True)")
    assert html(python, "rotary.attention").count("<svg") == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ('runs[["variant", "seed", "state", "valid/loss", "test/exact_match"]]', ["rotary", "DONE"]),
        ("losses.pivot_table", ["<th>200</th>", "sinusoidal"]),
        ("judged.frame", ["new", "better"]),
        ("h2h.judge", ["rotary", "verdict"]),
        ('evaluations[["run", "step", "train/loss", "valid/loss"]].sort_values', ["init_from-none-s1", "<td>40</td>"]),
    ],
)
def test_results_curves_verdicts_and_evaluations_are_tables(python: Any, cell: str, words: list[str]) -> None:
    shown = html(python, cell)
    assert [word for word in words if word not in shown] == []

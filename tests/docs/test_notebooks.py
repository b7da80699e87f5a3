"""The notebooks of the docs run in a real Jupyter kernel, and their cells have the documented outputs."""

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
NOTEBOOKS = ("compare", "python")
MAX_BYTES = 200_000


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(notebook: Any) -> list[list[str]]:
    """Return the media types of every cell's outputs, without the progress of training."""
    return [
        [
            kind
            for output in cell.outputs
            for kind in sorted(output.get("data", [output.get("name")]))
            if kind != "stderr"
        ]
        for cell in code_cells(notebook)
    ]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stored_outputs_are_small_and_free_of_errors_and_folders(name: str) -> None:
    path = HOW_TO / f"{name}.ipynb"
    assert path.stat().st_size < MAX_BYTES
    assert not re.search(r"/tmp/|/home/|/root/|/work/|iopub", path.read_text(encoding="utf-8"))
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_new_execution_has_no_errors_and_the_stored_kinds_of_output(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = nbformat.read(HOW_TO / f"{name}.ipynb", as_version=4)
    for cell in code_cells(executed):
        cell.source = cell.source.replace("400", "60")  # epochs of the translators
    folders = {"H2H_CACHE": "cache", "IPYTHONDIR": "ipython", "JUPYTER_RUNTIME_DIR": "runtime"}
    for variable, folder in folders.items():
        monkeypatch.setenv(variable, str(tmp_path / folder))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    for variable in ("H2H_RUNS", "H2H_REPORTS", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(
        executed, timeout=240, kernel_name="python3", allow_errors=True, resources=resources
    )
    client.execute(env=dict(os.environ))
    outputs = [output for cell in code_cells(executed) for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    progress = "".join(output["text"] for output in outputs if output.get("name") == "stderr")
    assert [
        line
        for line in progress.splitlines()
        if not re.match(r"training \d+ run|\[\d+/\d+\] |[^:]+: step ", line)
    ] == []
    assert kinds(nbformat.read(HOW_TO / f"{name}.ipynb", as_version=4)) == kinds(executed)
    html = "".join(output["data"].get("text/html", "") for output in outputs if "data" in output)
    assert html.count("<svg") >= 3
    assert "<table" in html

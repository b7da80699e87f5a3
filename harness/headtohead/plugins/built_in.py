"""The modules of the built-in plugins."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

DISTRIBUTION = "headtohead"
"""The distribution of the built-in plugins."""

FOLDER = Path(str(resources.files("headtohead_plugins")))
"""The folder with one folder per family; every file in them is a plugin."""

MODULES = (
    *(
        f"headtohead_plugins.{file.parent.name}.{file.stem}"
        for file in sorted(FOLDER.glob("*/[!_]*.py"))
    ),
    "headtohead_mlflow.entry",
    "headtohead_notebooks.embedding_softmax",
    "headtohead_notebooks.imported_runs",
    "headtohead_notebooks.notebook_pairs",
    "headtohead_notebooks.recipes",
    "headtohead_notebooks.sinusoidal_by_row",
)
"""Import names of the built-in plugins: those of the folders, MLflow, and those of the notebooks."""

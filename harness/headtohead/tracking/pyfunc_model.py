"""The model of a run for ``mlflow.pyfunc``: a list of sentences gives a list of translations.

MLflow copies this file into the model and imports it when the model is loaded.
"""

from __future__ import annotations

from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from headtohead.execution.loaded import load


class Translator(PythonModel):
    """Translates with an exported model, the artifact ``model``."""

    def load_context(self, context: Any) -> None:
        self.model = load(context.artifacts["model"])

    def predict(self, context: Any, model_input: list[str]) -> list[str]:  # type: ignore[override]
        return list(self.model.translate(model_input))


set_model(Translator())

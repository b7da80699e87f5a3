"""Loads the model of a run for ``mlflow.pyfunc.load_model``: text in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headtohead.storage.experiment import examples_of

if TYPE_CHECKING:
    from headtohead.execution.loaded import LoadedRun

CONTINUED_TOKENS = 40
"""Default number of tokens that continue a prompt."""


class TextModel:
    """A model with the interface of MLflow's ``pyfunc`` flavor.

    A translation model returns translations. A model of a text continues prompts. A model of sequences with labels
    returns the labels of the words in brackets.
    """

    def __init__(self, run: LoadedRun) -> None:
        self.run = run

    def predict(self, texts: Any, params: Mapping[str, Any] | None = None) -> list[str]:
        """Return a text for each text.

        Args:
            texts: A table whose first column has the texts, a list of texts, or a text.
            params: For a model of a text: ``tokens``, ``temperature`` and ``seed`` of the continuation.

        Raises:
            HeadToHeadError: If a text is too long or has a word that the vocabulary refuses, or a prompt is empty.
        """
        sentences = _texts(texts)
        kind = examples_of(self.run.record.data)
        if kind == "blocks":
            settings = params or {}
            return [self._continued(prompt, settings) for prompt in sentences]
        if kind == "sequences":
            return [self.run.label(sequence) for sequence in sentences]
        return self.run.translate(sentences)

    def _continued(self, prompt: str, settings: Mapping[str, Any]) -> str:
        return self.run.continue_text(
            prompt,
            int(settings.get("tokens", CONTINUED_TOKENS)),
            float(settings.get("temperature", 1.0)),
            int(settings.get("seed", 1)),
        )


def _load_pyfunc(path: str) -> TextModel:
    """Return the model of an exported folder; MLflow calls this function.

    Raises:
        HeadToHeadError: If the folder is damaged, or an entry of the model is not registered.
    """
    from headtohead.execution.loaded import load

    return TextModel(load(Path(path)))


def _texts(texts: Any) -> list[str]:
    """Return the texts of a table, of a list or of a single text."""
    if isinstance(texts, str):
        return [texts]
    if hasattr(texts, "iloc"):
        texts = texts.iloc[:, 0]
    elements: Iterable[Any] = texts
    return [str(element) for element in elements]

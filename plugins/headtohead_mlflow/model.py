"""The model of the best run in MLflow: a folder that ``mlflow.pyfunc.load_model`` loads.

The shipper writes it from the files of the run directory, without torch. ``model/`` is the folder that ``h2h export``
writes; `loaded_model` loads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headtohead.data import PreparedData, cache_root, prepare_recorded
from headtohead.errors import HeadToHeadError
from headtohead.escaping import markdown_code
from headtohead.storage.experiment import examples_of
from headtohead.storage.run import CHECKPOINT
from headtohead.tracking.study import TrackedRun
from headtohead_mlflow.run_page import NOTE_TAG, SHIPPED_TAG, TAG_LIMIT
from headtohead_mlflow.store import Store

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel

MAX_BYTES = 50_000_000
"""Size of the weights above which no model is logged."""
LOAD = "**Load this model:**"
NAME = "best"
DATA = "model"
EXAMPLE = "input_example.json"
REQUIREMENTS = "requirements.txt"
ENVIRONMENT = "python_env.yaml"
CANNOT_TRANSLATE = ("none", "teacher-forced")
"""The values of ``evaluate.decode`` with which a run cannot translate a new sentence."""


def log_model(store: Store, experiment_id: str, run: TrackedRun, run_id: str, folder: Path) -> str:
    """Log the model of a finished run, unless MLflow has it, and return how to load it, in Markdown.

    The description of the MLflow run has it too. The model of an earlier best run is deleted.

    Args:
        store: The store.
        experiment_id: The MLflow experiment of the study.
        run: The best run.
        run_id: Its MLflow run.
        folder: An empty folder for the files.

    Raises:
        HeadToHeadError: If the run has no model, for a reason that the message states.
    """
    model = _logged_model(store, experiment_id, run.content_hash())
    if model is None:
        _check(run)
        model = _new_model(store, experiment_id, run, run_id, folder)
    usage = _usage(model.model_id, example_text(run))
    _describe(store, experiment_id, run_id, usage)
    return usage


def _logged_model(store: Store, experiment_id: str, content_hash: str) -> LoggedModel | None:
    """Return the complete model of a run with this content, or None; delete all other models of best runs."""
    complete = None
    for model in store.client.search_logged_models([experiment_id]):
        if model.name != NAME:
            continue
        if model.tags.get(SHIPPED_TAG) == content_hash and model.status == "READY":
            complete = model
            continue
        store.client.delete_logged_model(model.model_id)
        if model.source_run_id:
            _describe(store, experiment_id, model.source_run_id, "")
    return complete


def _new_model(
    store: Store, experiment_id: str, run: TrackedRun, run_id: str, folder: Path
) -> LoggedModel:
    """Log the model of a run; only a complete model has the status READY."""
    client = store.client
    record = run.record
    words = prepare_recorded(record.config.data, cache_root(), record.data["data_hash"])
    tags = {SHIPPED_TAG: run.content_hash()}
    model = client.create_logged_model(experiment_id, NAME, run_id, tags=tags)
    _write_export(run, words, folder / DATA)
    _write_description(run, folder, model)
    client.log_model_artifacts(model.model_id, str(folder))
    usage = _usage(model.model_id, example_text(run))
    client.set_logged_model_tags(model.model_id, {NOTE_TAG: usage})
    return client.finalize_logged_model(model.model_id, "READY")


def _usage(model_id: str, example: str) -> str:
    """Return the lines of Python that load a model, in Markdown; as a block, a window of 800 pixels would cut them."""
    text = json.dumps(example, ensure_ascii=False)
    lines = [
        f'model = mlflow.pyfunc.load_model("models:/{model_id}")',
        f"model.predict([{text}])",
    ]
    return "  \n".join([LOAD, *map(markdown_code, lines)])


def _describe(store: Store, experiment_id: str, run_id: str, usage: str) -> None:
    """Put the lines that load the model into the description of an MLflow run, or remove them if there are none.

    A deleted MLflow run, such as that of an earlier training, cannot be changed.
    """
    for mlflow_run in store.runs(experiment_id, f"attributes.run_id = '{run_id}'"):
        note = mlflow_run.data.tags.get(NOTE_TAG, "")
        question, *others = note.split("\n\n")
        paragraphs = [question]
        if usage:
            paragraphs.append(usage)
        paragraphs += [paragraph for paragraph in others if not paragraph.startswith(LOAD)]
        changed = "\n\n".join(paragraphs)[:TAG_LIMIT]
        if changed != note:
            store.client.set_tag(run_id, NOTE_TAG, changed)


def example_text(run: TrackedRun) -> str:
    """Return a text for the model of a run: the first probe sentence of the study."""
    for probe in run.study.record.probes:
        return probe.source or probe.target or ""
    return ""


def _check(run: TrackedRun) -> None:
    """Raise a HeadToHeadError if the run has no model to log."""
    config = run.record.config
    size = run.verified(CHECKPOINT).stat().st_size
    if size > MAX_BYTES:
        raise HeadToHeadError(
            f"no model in MLflow: its weights have {size / 1e6:.0f} MB; h2h export {run.name} FOLDER writes it"
        )
    is_pair = examples_of(run.record.data) == "pairs"
    if is_pair and config.evaluate.decode in CANNOT_TRANSLATE:
        raise HeadToHeadError(
            f"no model in MLflow: with evaluate.decode {config.evaluate.decode} it cannot translate new sentences"
        )


def _write_export(run: TrackedRun, words: PreparedData, folder: Path) -> None:
    """Write the folder of ``h2h export``, with the weights of the checkpoint as they are.

    Raises:
        HeadToHeadError: If the checkpoint is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    from headtohead.execution.exported import write_exported
    from headtohead.report.model_card import model_card

    results = run.results
    assert results is not None
    is_pair = examples_of(run.record.data) == "pairs"
    card = model_card(run.record, results, None, translates=is_pair)
    checkpoint = run.verified(CHECKPOINT)
    try:
        weights = load_file(checkpoint)
    except SafetensorError as error:
        raise HeadToHeadError(f"no model in MLflow: '{checkpoint}' is damaged: {error}") from None
    write_exported(folder, run.record, weights, words, card)


def _write_description(run: TrackedRun, folder: Path, logged: LoggedModel) -> None:
    """Write ``MLmodel`` with the requirements and an input example.

    ``mlflow.pyfunc`` has a function for this, but its import takes a second and warns of unrelated code.
    """
    from mlflow.models import Model

    record = run.record
    requirements = _requirements(record.versions)
    (folder / REQUIREMENTS).write_text("\n".join(requirements) + "\n", encoding="utf-8")
    environment = {"python": record.versions["python"], "dependencies": [f"-r {REQUIREMENTS}"]}
    (folder / ENVIRONMENT).write_text(json.dumps(environment), encoding="utf-8")
    example = {"inputs": [example_text(run)]}
    (folder / EXAMPLE).write_text(json.dumps(example, ensure_ascii=False), encoding="utf-8")
    description = Model(
        model_uuid=None,
        run_id=logged.source_run_id,
        model_id=logged.model_id,
        signature=_signature(examples_of(record.data)),
        saved_input_example_info={"artifact_path": EXAMPLE, "type": "json_object"},
    )
    description.add_flavor(
        "python_function",
        loader_module="headtohead_mlflow.loaded_model",
        data=DATA,
        python_version=record.versions["python"],
        env={"virtualenv": ENVIRONMENT},
    )
    description.save(str(folder / "MLmodel"))


def _signature(examples: str) -> Any:
    """Return MLflow's signature of a model: texts in, texts out; that of a text has the settings of a continuation."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema

    from headtohead_mlflow.loaded_model import CONTINUED_TOKENS

    texts = Schema([ColSpec("string")])
    params = None
    if examples == "blocks":
        settings = [
            ParamSpec("tokens", "long", CONTINUED_TOKENS),
            ParamSpec("temperature", "double", 1.0),
            ParamSpec("seed", "long", 1),
        ]
        params = ParamSchema(settings)
    # MLflow accepts None, which its annotation lacks.
    return ModelSignature(inputs=texts, outputs=texts, params=params)  # type: ignore[arg-type]


def _requirements(versions: Mapping[str, Any]) -> list[str]:
    """Return the packages that loading needs; those of headtohead include their own requirements."""
    return [f"{name}=={versions[name].partition('+')[0]}" for name in ("headtohead", "torch")]

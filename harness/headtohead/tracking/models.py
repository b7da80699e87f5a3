"""Logging of a run's dataset and weights as MLflow entities."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headtohead.storage.run import CHECKPOINT
from headtohead.tracking.description import RUN_HASH_TAG
from headtohead.tracking.rundirs import TrackedRun
from headtohead.tracking.staging import stage_model
from headtohead.tracking.store import Store

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Run

MODEL_TYPE = "headtohead-transformer"
DIGEST_LENGTH = 36


def log_dataset(store: Store, run_id: str, data: Mapping[str, Any]) -> None:
    """Link the run to its dataset: name, hash, licence and counts, without the sentences."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=data["dataset"],
        digest=data["data_hash"][:DIGEST_LENGTH],
        source_type="headtohead",
        source=json.dumps(
            {
                "dataset": data["dataset"],
                "licence": data.get("licence"),
                "citation": data.get("citation"),
                "languages": data.get("languages"),
            }
        ),
        schema=json.dumps(
            {"mlflow_colspec": [{"type": "string", "name": name, "required": True} for name in ("source", "target")]}
        ),
        profile=json.dumps(
            {
                "num_rows": sum(data["counts"].values()),
                **data["counts"],
                "split": data["split"],
                "vocabulary": data["vocabulary"],
                "bag_of_words_upper_bound": data.get("bag_of_words_upper_bound"),
            }
        ),
    )
    tag = InputTag("mlflow.data.context", ", ".join(data["counts"]))
    store.client.log_inputs(run_id, [DatasetInput(dataset, [tag])])


def log_model(
    store: Store, experiment_id: str, run: TrackedRun, run_id: str, earlier: Run | None
) -> LoggedModel | None:
    """Log the final weights as a model of the run and return the model; return None for a run without weights.

    ``earlier`` is the existing MLflow run, None for a new run. Its model is reused and its files are replaced. The
    weights of a reused run are logged only by the experiment that trained it.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    if run.reused_from or not run.has(CHECKPOINT):
        return None
    client = store.client
    existing = _existing(store, experiment_id, run_id) if earlier else None
    model = existing or _create(store, experiment_id, run, run_id)
    upload = functools.partial(client.log_model_artifacts, model.model_id)
    with store.artifacts(model.artifact_location, upload) as folder:
        stage_model(run, folder)
    if model.status != LoggedModelStatus.READY:
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    outputs = earlier.outputs.model_outputs if earlier and earlier.outputs else []
    if model.model_id not in {output.model_id for output in outputs}:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    return model


def _create(store: Store, experiment_id: str, run: TrackedRun, run_id: str) -> LoggedModel:
    name = f"{run.variant.slug}-s{run.seed}"
    return store.client.create_logged_model(
        experiment_id,
        name="".join(letter if letter.isalnum() or letter in "-_ " else "-" for letter in name),
        source_run_id=run_id,
        tags={RUN_HASH_TAG: run.run_hash},
        params={axis: str(value) for axis, value in run.variant.axes.items()},
        model_type=MODEL_TYPE,
    )


def _existing(store: Store, experiment_id: str, run_id: str) -> LoggedModel | None:
    models = store.client.search_logged_models([experiment_id], f"source_run_id = '{run_id}'", max_results=1)
    return models[0] if models else None

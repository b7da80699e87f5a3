"""A run's dataset and final weights in MLflow's own types."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headtohead.tracking.description import KEY_TAG
from headtohead.tracking.rundirs import TrackedRun
from headtohead.tracking.staging import has_model, stage_model
from headtohead.tracking.store import Store

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Run

MODEL_TYPE = "headtohead-transformer"
DIGEST_LENGTH = 36


def log_dataset(store: Store, run_id: str, data: Mapping[str, Any]) -> None:
    """Link the run to its dataset: name, data_hash, licence and counts, never the corpus."""
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
                "bag_of_words_ceiling": data.get("bag_of_words_ceiling"),
            }
        ),
    )
    tag = InputTag("mlflow.data.context", ", ".join(data["counts"]))
    store.client.log_inputs(run_id, [DatasetInput(dataset, [tag])])


def log_model(
    store: Store, experiment_id: str, run: TrackedRun, run_id: str, earlier: Run | None
) -> LoggedModel | None:
    """Log the final weights as a model of the run; return it, or None without weights.

    ``earlier`` is the MLflow run as it stood where it was not created just now: a model that it
    already has is filled again. A reused run's weights stay with the study that trained it.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    if run.reused_from or not has_model(run):
        return None
    client = store.client
    found = _existing(store, experiment_id, run_id) if earlier else None
    model = found or _create(store, experiment_id, run, run_id)
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
        tags={KEY_TAG: run.key},
        params={axis: str(value) for axis, value in run.variant.axes.items()},
        model_type=MODEL_TYPE,
    )


def _existing(store: Store, experiment_id: str, run_id: str) -> LoggedModel | None:
    found = store.client.search_logged_models([experiment_id], f"source_run_id = '{run_id}'", max_results=1)
    return found[0] if found else None

"""Registration of an exported model in MLflow's model registry."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from headtohead.config.project import readable
from headtohead.errors import HeadToHeadError
from headtohead.storage.translations import read_translations
from headtohead.tracking.run_page import RUN_HASH_TAG
from headtohead.tracking.store import mlflow_experiment, open_store, store_errors
from headtohead.tracking.study import TrackedRun, TrackedStudy

MODEL = "model"


def register(study: TrackedStudy, run: TrackedRun, exported: Path, name: str, uri: str) -> str:
    """Log an exported model to the MLflow run of a run, register it under a name, and return its URI.

    Raises:
        HeadToHeadError: If the store lacks the run, or refuses the model.
    """
    store = open_store(uri, create=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about type hints of mlflow itself
        from mlflow.pyfunc import save_model

    with store_errors(uri), tempfile.TemporaryDirectory(prefix="h2h-") as folder:
        experiment = store.client.get_experiment_by_name(mlflow_experiment(study.name))
        query = f"tags.`{RUN_HASH_TAG}` = '{run.run_hash}'"
        found = next(store.runs(experiment.experiment_id, query), None) if experiment else None
        if found is None:
            raise HeadToHeadError(f"{readable(uri)} has no run '{run.path.name}'; run h2h sync {study.name} first")
        example = [row.source for row in read_translations(run.path)[:2]]
        save_model(
            str(Path(folder, MODEL)),
            python_model=str(Path(__file__).with_name("pyfunc_model.py")),
            artifacts={MODEL: str(exported)},
            input_example=example,
            pip_requirements=["headtohead"],
        )
        store.client.log_artifacts(found.info.run_id, folder)
        if not store.client.search_registered_models(f"name = '{name}'"):
            store.client.create_registered_model(name)
        source = f"{found.info.artifact_uri}/{MODEL}"
        return f"models:/{name}/{store.client.create_model_version(name, source, found.info.run_id).version}"

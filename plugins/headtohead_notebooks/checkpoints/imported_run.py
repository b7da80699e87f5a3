"""Run directory of an imported checkpoint, and the study ``imported`` that lists all of them.

``runs/imported/NAME`` is renamed into place in one step, complete and DONE. It has no history and no
scores, because it was not trained here; ``imported`` in its record is the origin of the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from headtohead import files
from headtohead.config.identity import run_hashes, run_identity
from headtohead.config.loading import read_override
from headtohead.config.project import runs_folder
from headtohead.config.versions import versions
from headtohead.data.tokeniser import SIDES
from headtohead.errors import HeadToHeadError
from headtohead.model.counting import count
from headtohead.planning.lengths import decoding_limit
from headtohead.planning.pitfalls import find_pitfalls, is_order_invariant
from headtohead.planning.record import plugin_records
from headtohead.plugins.registry import Registry, current
from headtohead.storage import states
from headtohead.storage.experiment import (
    EXPERIMENT,
    ExperimentRecord,
    PlannedRunRecord,
    ReportedMetrics,
    VariantRecord,
)
from headtohead.storage.paths import inside
from headtohead.storage.results import ResultsRecord
from headtohead.storage.run import (
    CHECKPOINT,
    METRICS,
    RUN,
    VOCABULARY,
    ExecutionRecord,
    ImportedRecord,
    RunRecord,
)
from headtohead.storage.run_directory import RunDirectory, RunWriter, leased, now
from headtohead.storage.run_files import delete_run_files
from headtohead.training import checkpoint
from headtohead_notebooks.checkpoints.reading import Imported, read_checkpoint

STUDY = "imported"
SEED = 1
"""Records require a seed; the seed of an imported checkpoint is unknown."""


def import_checkpoint(
    file: Path | str,
    *,
    recipe: str,
    name: str,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    runs: Path | None = None,
    log: Callable[[str], object] = lambda line: None,
) -> Path:
    """Import a notebook's state dict as a run directory and return its path.

    Args:
        file: File written by ``torch.save(model.state_dict(), file)``.
        recipe: Name of the notebook's recipe.
        name: Name of the run in ``runs/imported``.
        data: The notebook's file of sentence pairs, if it used one.
        overrides: Values that neither the checkpoint nor the recipe determines, for example ``"model.heads=2"``.
        runs: Folder of run directories.
        log: Receives lines of text for the user.

    Raises:
        HeadToHeadError: If the file is not a state dict or does not match the recipe.
    """
    root = runs_folder(given=runs)
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise HeadToHeadError(
            f"'{name}' is not a valid name of a run; use letters, digits and . _ + -, starting with a letter or digit"
        )
    if (root / STUDY / name).exists():
        raise HeadToHeadError(
            f"run '{root / STUDY / name}' exists; delete it, or use another --name"
        )
    registry = current()
    settings = [read_override(text) for text in overrides]
    imported = read_checkpoint(Path(file), recipe, registry, Path(data) if data else None, settings)
    log(imported.summary())
    if pitfalls := find_pitfalls(imported.config):
        log(f"pitfalls: {', '.join(pitfall.name for pitfall in pitfalls)}")
    for note in imported.vocabulary.notes:
        log(f"note: {note}")
    return _write_imported(imported, name, root, registry)


def _write_imported(imported: Imported, name: str, runs: Path, registry: Registry) -> Path:
    """Write the run directory in one step, list it in the study, and return its path.

    Raises:
        HeadToHeadError: If the folder cannot be written.
    """
    study = inside(runs, STUDY)
    inside(study, name, tree=True)
    with files.writing(study, "free space, or use another folder with --runs"):
        scratch = inside(study, ".importing", name)
        study.mkdir(parents=True, exist_ok=True)
        with FileLock(study / ".lock"):
            delete_run_files(scratch)
            scratch.mkdir(parents=True, exist_ok=True)
            try:
                with leased(scratch) as writer:
                    _fill(writer, imported, name, registry)
                scratch.rename(study / name)
            finally:
                delete_run_files(scratch.parent)
            _list_runs(study)
    return study / name


def _fill(run: RunWriter, imported: Imported, name: str, registry: Registry) -> None:
    # The run is in .importing of the study's folder.
    record = _record(imported, name, registry, run.path.resolve().parents[3])
    run.plan(record)
    checkpoint.save(run.path / CHECKPOINT, imported.weights, {"run_hash": record.run_hash})
    vocabularies = imported.vocabulary.vocabularies
    files.write_json(
        run.path / VOCABULARY,
        {side: vocabularies[side].words if vocabularies else None for side in SIDES},
    )
    (run.path / METRICS).touch()
    run.set_state(states.LEASED, attempt=1, started=now())
    notes = [
        f"imported from '{imported.source.name}', not trained here",
        *imported.vocabulary.notes,
    ]
    run.finish(
        ResultsRecord(
            metrics={},
            buckets=(),
            signatures={},
            best_step=None,
            stopped_early=False,
            notes=tuple(notes),
        )
    )


def _record(imported: Imported, name: str, registry: Registry, project: Path) -> RunRecord:
    config, sizes = imported.config, imported.vocabulary.sizes
    data, longest = imported.vocabulary.record, imported.vocabulary.longest_target
    identity = run_identity(config, data["data_hash"])
    costs = count(config, sizes["source"], sizes["target"], 10.0, 10.0)
    return RunRecord(
        run_hash=run_hashes({**identity, "imported": imported.sha256}, [SEED])[0],
        experiment=STUDY,
        variant=name,
        seed=SEED,
        title=name,
        axes={},
        recipe=imported.recipe,
        imported=ImportedRecord(
            file=str(imported.source.resolve()),
            sha256=imported.sha256,
            form=imported.form,
            words=sizes,
            positions=imported.positions,
        ),
        counts=costs,
        d_ff=config.model.d_ff,
        d_ff_asked=config.model.d_ff,
        match="none",
        steps=0,
        evaluate_every=1,
        decoding_limit=decoding_limit(config, longest) if longest else 0,
        order_invariant=is_order_invariant(config),
        pitfalls=find_pitfalls(config),
        config=config,
        plugins=plugin_records(config, project),
        data=data,
        execution=ExecutionRecord(
            stack=(), member=0, threads=1, device=None, dtype=config.train.precision
        ),
        versions=versions(),
        created=now(),
    )


def _list_runs(study: Path) -> None:
    """Rewrite experiment.json from the existing run directories."""
    records = {
        path.parent.name: RunDirectory(path.parent).record
        for path in sorted(study.glob(f"[!.]*/{RUN}"))
    }
    first = next(iter(records.values()))
    experiment = ExperimentRecord(
        name=STUDY,
        question="What did the checkpoints of the notebooks learn?",
        command="h2h import-checkpoint FILE --recipe NAME --name RUN",
        created=now(),
        axes=(),
        baseline=next(iter(records)),
        seeds=(SEED,),
        variants=tuple(
            VariantRecord(slug=name, **record.resolved) for name, record in records.items()
        ),
        contrasts=(),
        match="none",
        metrics=ReportedMetrics(primary="test/exact_match", report=()),
        probes=(),
        notes=("imported checkpoints: nothing was trained or scored here",),
        data=first.data,
        runs=tuple(
            PlannedRunRecord(variant=name, seed=SEED, run_hash=record.run_hash, directory=name)
            for name, record in records.items()
        ),
        versions=versions(),
    )
    files.write_json(study / EXPERIMENT, experiment.to_json())

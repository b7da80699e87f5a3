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
from headtohead.config.entries import plugins_of
from headtohead.config.identity import run_hashes, run_identity
from headtohead.config.loading import read_override
from headtohead.config.project import runs_folder
from headtohead.config.versions import versions
from headtohead.data.tokeniser import SIDES, Side
from headtohead.errors import HeadToHeadError
from headtohead.model.counting import count
from headtohead.planning.lengths import decoding_limit
from headtohead.planning.pitfalls import find_pitfalls, is_order_invariant
from headtohead.planning.record import plugin_records
from headtohead.storage import states
from headtohead.storage.experiment import (
    EXPERIMENT,
    ExperimentRecord,
    PlannedRunRecord,
    ReportedMetrics,
    VariantRecord,
)
from headtohead.storage.paths import checked_path
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
    directory = root / STUDY / name
    if directory.exists():
        raise HeadToHeadError(f"run '{directory}' exists; delete it, or use another --name")
    settings = [read_override(text) for text in overrides]
    data_file = Path(data) if data else None
    imported = read_checkpoint(Path(file), recipe, data_file, settings)
    log(imported.summary())
    pitfalls = [pitfall.name for pitfall in find_pitfalls(imported.config)]
    if pitfalls:
        log(f"pitfalls: {', '.join(pitfalls)}")
    for note in imported.vocabulary.notes:
        log(f"note: {note}")
    return _write_imported(imported, name, root)


def _write_imported(imported: Imported, name: str, runs: Path) -> Path:
    """Write the run directory in one step, list it in the study, and return its path.

    Raises:
        HeadToHeadError: If the folder cannot be written.
    """
    study = checked_path(runs, STUDY)
    checked_path(study, name, tree=True)
    with files.writing(study, "free space, or use another folder with --runs"):
        scratch = checked_path(study, ".importing", name)
        study.mkdir(parents=True, exist_ok=True)
        with FileLock(study / ".lock"):
            delete_run_files(scratch)
            scratch.mkdir(parents=True, exist_ok=True)
            try:
                with leased(scratch) as writer:
                    _fill(writer, imported, name)
                scratch.rename(study / name)
            finally:
                delete_run_files(scratch.parent)
            _list_runs(study)
    return study / name


def _fill(run: RunWriter, imported: Imported, name: str) -> None:
    """Write the files of a run that is DONE: plan, weights, vocabularies, and results without scores."""
    # The run is in .importing of the study's folder.
    project = run.path.resolve().parents[3]
    record = _record(imported, name, project)
    run.plan(record)
    checkpoint.save(run.path / CHECKPOINT, imported.weights, {"run_hash": record.run_hash})
    words: dict[Side, Sequence[str] | None] = dict.fromkeys(SIDES)
    if imported.vocabulary.vocabularies:
        for side, vocabulary in imported.vocabulary.vocabularies.items():
            words[side] = vocabulary.words
    files.write_json(run.path / VOCABULARY, words)
    (run.path / METRICS).touch()
    run.set_state(states.LEASED, attempt=1, started=now())
    origin = f"imported from '{imported.source.name}', not trained here"
    results = ResultsRecord(
        metrics={},
        buckets=(),
        signatures={},
        best_step=None,
        stopped_early=False,
        notes=(origin, *imported.vocabulary.notes),
    )
    run.finish(results)


def _record(imported: Imported, name: str, project: Path) -> RunRecord:
    """Return the record of a run that was imported, not trained."""
    config = imported.config
    data = imported.vocabulary.record
    sizes = imported.vocabulary.sizes
    identity = run_identity(config, data["data_hash"])
    identity["imported"] = imported.sha256
    (run_hash,) = run_hashes(identity, [SEED])
    costs = count(config, sizes["source"], sizes["target"], 10.0, 10.0)
    origin = ImportedRecord(
        file=str(imported.source.resolve()),
        sha256=imported.sha256,
        form=imported.form,
        words=sizes,
        positions=imported.positions,
    )
    limit = 0
    longest_target = imported.vocabulary.longest_target
    if longest_target:
        limit = decoding_limit(config, longest_target)
    precision = config.train.precision
    execution = ExecutionRecord(stack=(), member=0, threads=1, device=None, dtype=precision)
    return RunRecord(
        run_hash=run_hash,
        experiment=STUDY,
        variant=name,
        seed=SEED,
        title=name,
        axes={},
        recipe=imported.recipe,
        imported=origin,
        counts=costs,
        d_ff=config.model.d_ff,
        d_ff_asked=config.model.d_ff,
        match="none",
        steps=0,
        evaluate_every=1,
        decoding_limit=limit,
        order_invariant=is_order_invariant(config),
        pitfalls=find_pitfalls(config),
        config=config,
        plugins=plugin_records(plugins_of(config), project),
        data=data,
        execution=execution,
        versions=versions(),
        created=now(),
    )


def _list_runs(study: Path) -> None:
    """Rewrite experiment.json from the existing run directories."""
    names = []
    records = []
    variants = []
    runs = []
    for path in sorted(study.glob(f"[!.]*/{RUN}")):
        name = path.parent.name
        record = RunDirectory(path.parent).record
        names.append(name)
        records.append(record)
        variants.append(VariantRecord(slug=name, **record.resolved))
        runs.append(
            PlannedRunRecord(variant=name, seed=SEED, run_hash=record.run_hash, directory=name)
        )
    experiment = ExperimentRecord(
        name=STUDY,
        question="What did the checkpoints of the notebooks learn?",
        command="h2h import-checkpoint FILE --recipe NAME --name RUN",
        created=now(),
        axes=(),
        baseline=names[0],
        seeds=(SEED,),
        variants=tuple(variants),
        contrasts=(),
        match="none",
        metrics=ReportedMetrics(primary="test/exact_match", report=()),
        probes=(),
        notes=("imported checkpoints: nothing was trained or scored here",),
        data=records[0].data,
        runs=tuple(runs),
        versions=versions(),
    )
    files.write_json(study / EXPERIMENT, experiment.to_json())

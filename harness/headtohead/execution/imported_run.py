"""The run directory of an imported checkpoint, and the study that all of them are listed in.

``runs/imported/NAME`` appears in one step, complete and DONE. It was not trained here: it has no
history and no scores, and ``imported`` in its record says where the weights come from.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock

from headtohead import files
from headtohead.config.identity import canonical, key_of
from headtohead.config.versions import plugins_record, versions
from headtohead.data.prepared import SIDES
from headtohead.errors import HeadToHeadError, is_disk_error
from headtohead.execution.import_checkpoint import Imported
from headtohead.model.counting import count
from headtohead.planning.lengths import decoding_limit
from headtohead.planning.pitfalls import faults_of
from headtohead.plugins.registry import Registry
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.storage.run_directory import RunWriter, leased, now
from headtohead.training import checkpoint

STUDY = "imported"
SEED = 1
"""A checkpoint does not say how it was drawn; records want a number."""

VARIANT = (
    "title",
    "axes",
    "parameters",
    "flops_per_token",
    "inner_width",
    "d_ff",
    "d_ff_asked",
    "match",
    "path",
    "decoding_limit",
    "faults",
    "config",
)
"""What experiment.json repeats of a run's record."""


def check_name(name: str) -> None:
    """Refuse a name that is no name of a folder.

    Raises:
        HeadToHeadError: Naming the characters that are allowed.
    """
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise HeadToHeadError(
            f"'{name}' cannot name a run; use letters, digits and any of . _ + -, beginning with a letter or digit"
        )


def refuse_existing(name: str, runs: Path) -> None:
    """Refuse to write over a run.

    Raises:
        HeadToHeadError: If there is one with that name.
    """
    if (runs / STUDY / name).exists():
        raise HeadToHeadError(f"run '{runs / STUDY / name}' exists; give another --name, or --force to replace it")


def write_imported(imported: Imported, name: str, runs: Path, registry: Registry) -> Path:
    """Write a run directory in one step and list it in the study; return its path.

    A run of that name is moved aside, into ``.superseded``.

    Raises:
        HeadToHeadError: If the folder cannot be written.
    """
    study = inside(runs, STUDY)
    inside(study, name, tree=True)
    try:
        study.mkdir(parents=True, exist_ok=True)
        with FileLock(study / ".lock"), _scratch(study, name) as scratch:
            with leased(scratch) as writer:
                _fill(writer, imported, name, registry)
            if (study / name).exists():
                aside = inside(study, ".superseded", now().replace(":", ""))
                aside.mkdir(parents=True)
                (study / name).rename(aside / name)
            scratch.rename(study / name)
            _list_runs(study)
    except Exception as error:
        if not isinstance(error, OSError) and not is_disk_error(error):
            raise
        reason = getattr(error, "strerror", None) or error
        raise HeadToHeadError(
            f"cannot write to '{study}' ({reason}); free space or name another folder with --runs"
        ) from error
    return study / name


@contextmanager
def _scratch(study: Path, name: str) -> Iterator[Path]:
    """Yield a folder that is gone afterwards, unless it was moved to its place."""
    scratch = inside(study, ".importing", name)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch.parent, ignore_errors=True)


def _fill(run: RunWriter, imported: Imported, name: str, registry: Registry) -> None:
    record = _record(imported, name, registry)
    run.plan(record)
    checkpoint.save(run.path / "checkpoint.safetensors", imported.weights, {"key": record["key"]})
    vocabularies = imported.words.vocabularies
    words = {side: vocabularies[side].words if vocabularies else None for side in SIDES}
    files.write_json(run.path / "vocabulary.json", words)
    (run.path / "metrics.jsonl").touch()
    run.set_state(states.LEASED, attempt=1, started=now())
    notes = [f"imported from '{imported.source.name}', not trained here", *imported.words.notes]
    run.finish(
        {"metrics": {}, "buckets": [], "signatures": {}, "best_step": None, "stopped_early": False, "notes": notes}
    )


def _record(imported: Imported, name: str, registry: Registry) -> dict[str, Any]:
    config, sizes = imported.config, imported.words.sizes
    data, longest = imported.words.record, imported.words.longest_target
    identity = canonical(config, data["fingerprint"], registry)
    costs = count(config, sizes["source"], sizes["target"], 10.0, 10.0)
    return {
        "format": 1,
        "key": key_of({**identity, "imported": imported.sha256}, SEED),
        "experiment": STUDY,
        "variant": name,
        "seed": SEED,
        "title": name,
        "axes": {},
        "recipe": imported.recipe,
        "imported": {
            "file": str(imported.source.resolve()),
            "sha256": imported.sha256,
            "form": imported.form,
            "words": dict(sizes),
            "positions": imported.positions,
        },
        "parameters": {"total": costs.total, "non_embedding": costs.non_embedding, "attention": costs.attention},
        "flops_per_token": costs.flops_per_token,
        "inner_width": costs.inner_width,
        "d_ff": config.model.d_ff,
        "d_ff_asked": config.model.d_ff,
        "match": "none",
        "path": dict(costs.path),
        "decoding_limit": decoding_limit(config, longest) if longest else 0,
        "faults": [asdict(one) for one in faults_of(config, registry)],
        "config": config.model_dump(mode="json"),
        "plugins": plugins_record(config, registry),
        "data": data,
        "execution": {"stack": [], "member": 0, "threads": 1, "device": None, "dtype": config.train.precision},
        "versions": versions(),
        "created": now(),
    }


def _list_runs(study: Path) -> None:
    """Write experiment.json anew from the run directories that are there."""
    records = {path.parent.name: files.read_json(path) for path in sorted(study.glob("[!.]*/run.json"))}
    first = next(iter(records.values()))
    files.write_json(
        study / "experiment.json",
        {
            "format": 1,
            "name": STUDY,
            "question": "What did the notebooks' own checkpoints learn?",
            "description": None,
            "file": None,
            "text": "",
            "command": "h2h import FILE --recipe NAME --name RUN",
            "created": now(),
            "axes": [],
            "baseline": next(iter(records)),
            "seeds": [SEED],
            "variants": [_variant(name, record) for name, record in records.items()],
            "excluded": [],
            "contrasts": [],
            "match": "none",
            "metrics": {"primary": "test/exact_match", "report": []},
            "probes": [],
            "notes": ["imported checkpoints: nothing was trained or scored here"],
            "data": first["data"],
            "runs": [
                {"variant": name, "seed": SEED, "key": record["key"], "directory": name, "reused_from": None}
                for name, record in records.items()
            ],
            "versions": versions(),
        },
    )


def _variant(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    return {"slug": name, "equal_to": None, "equal_reason": None, **{field: record[field] for field in VARIANT}}

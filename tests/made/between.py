"""Studies between two configurations as run directories: a real plan, and scores from a function.

The function receives the changes of the variant and the seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headtohead
from headtohead.config.loading import load_text
from headtohead.config.yaml_text import dump
from headtohead.planning.planner import make_plan
from headtohead.plugins import registry as plugin_registry
from headtohead.plugins.entry import Setting
from headtohead.plugins.registry import Registry, current, load_registry
from headtohead.schema.run_config import RunConfig
from headtohead.storage.run import RunRecord
from headtohead.storage.run_directory import checksums
from headtohead_plugins.positional.sinusoidal import Sinusoidal

BASE: dict[str, Any] = {
    "positional": "choosy",
    "data": {"dataset": "toy-grammar", "size": 120},
    "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0, "final_norm": False},
    "train": {"epochs": 1, "batch_tokens": 256},
}
ENDS: dict[str, tuple[Any, Any]] = {
    "model.norm": ("pre", "post"),
    "model.activation": ("relu", "gelu"),
    "model.bias": (True, False),
    "train.lr": (1e-3, 2e-3),
    "train.label_smoothing": (0.0, 0.1),
    "model.init": ("xavier", "torch"),
    "masking.decoder": ("padding-causal", "causal"),
}
"""Changes with their two values; the last cannot make a difference."""

Score = Callable[[frozenset[str], int], float | None]


@dataclass
class BetweenStudy:
    """A made-up study; ``score`` and ``is_incompatible`` get the changes of a variant."""

    names: tuple[str, ...]
    score: Score
    seeds: tuple[int, ...] = (1, 2, 3)
    primary: str = "valid/token_accuracy"
    is_incompatible: Callable[[frozenset[str]], bool] | None = None
    name: str = "between"
    states: dict[tuple[str, int], str] = field(default_factory=dict)


def write_between(root: Path, study: BetweenStudy, cache: Path) -> Path:
    """Write the experiment and its runs under ``root``; return its folder."""
    record, runs = _planned(study, cache)
    folder = root / study.name
    folder.mkdir(parents=True)
    (folder / "experiment.json").write_text(json.dumps(record, allow_nan=False), encoding="utf-8")
    start = record["variants"][0]["axes"]
    applied = {
        variant["slug"]: frozenset(n for n, value in variant["axes"].items() if value != start[n])
        for variant in record["variants"]
    }
    for run, directory, text in runs:
        _write_run(folder / directory, run, text, study, applied[run.variant])
    return folder


Planned = tuple[dict[str, Any], list[tuple[RunRecord, str, str]]]
"""The record of an experiment, and its runs, each with its directory and the text of its ``run.json``."""

_plans: dict[str, Planned] = {}
"""Plans of studies in which no variant is incompatible, by the content of their files: a plan takes half a second."""


def _planned(study: BetweenStudy, cache: Path) -> Planned:
    content = _file(study)
    key = json.dumps([study.name, content])
    if study.is_incompatible is None and key in _plans:
        return _plans[key]
    with _registry(study) as registry:
        plan = make_plan(load_text(dump(content), Path(f"{study.name}.yaml")), registry, cache / "no-runs", cache)
        records = [(plan.run_record(run), run.directory) for run in plan.runs]
        planned = plan.record().to_json(), [(run, directory, _run_text(run)) for run, directory in records]
    if study.is_incompatible is None:
        _plans[key] = planned
    return planned


def _run_text(run: RunRecord) -> str:
    execution = {"stack": [run.run_hash], "member": 0, "threads": 1, "device": "cpu", "dtype": "float32"}
    return json.dumps(run.to_json() | {"versions": {"torch": "2"}, "execution": execution})


def _file(study: BetweenStudy) -> dict[str, Any]:
    return {
        "question": "What accounts for the difference?",
        "base": BASE,
        "design": [
            {
                "between": {
                    "from": {name: ENDS[name][0] for name in study.names},
                    "to": {name: ENDS[name][1] for name in study.names},
                }
            }
        ],
        "seeds": list(study.seeds),
        "metrics": {"primary": study.primary, "report": ["valid/loss"]},
    }


@contextmanager
def _registry(study: BetweenStudy) -> Iterator[Registry]:
    """Register a positional encoding that is incompatible with the study's incompatible variants."""

    class Choosy(Sinusoidal):
        @classmethod
        def incompatible_with(cls, options: Any, setting: Setting) -> str | None:
            applied = frozenset(name for name in study.names if _value(setting.config, name) == ENDS[name][1])
            refused = study.is_incompatible is not None and study.is_incompatible(applied)
            return "these are inseparable" if refused else None

    class Plugin:
        @headtohead.plugin.hookimpl
        def register_positionals(self) -> dict[str, type[Sinusoidal]]:
            return {"choosy": Choosy}

    before = current()
    plugin_registry._current = load_registry(objects=[Plugin()])
    try:
        yield current()
    finally:
        plugin_registry._current = before


def _value(config: RunConfig, name: str) -> Any:
    section, field_name = name.split(".")
    value = getattr(getattr(config, section), field_name)
    return value.name if section == "masking" else value


def _write_run(folder: Path, run: RunRecord, text: str, study: BetweenStudy, applied: frozenset[str]) -> None:
    folder.mkdir()
    state = study.states.get((run.variant, run.seed), "DONE")
    (folder / "run.json").write_text(text, encoding="utf-8")
    status = {"state": state, "reason": None, "step": 10, "steps": 10}
    _dump(folder / "status.json", status)
    if state != "DONE":
        return
    score = study.score(applied, run.seed)
    metrics = {"system/wall_seconds": 1.0, "system/tokens_per_second": 1000.0, "valid/loss": 1.0}
    if score is not None:
        metrics[study.primary] = score
    _dump(folder / "results.json", {"metrics": metrics} | NOTHING_ELSE)
    _dump(folder / "status.json", status | {"files": checksums(folder)})


NOTHING_ELSE: dict[str, Any] = {"buckets": [], "signatures": {}, "best_step": None, "stopped_early": False, "notes": []}
"""The rest of ``results.json``."""


def _dump(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")

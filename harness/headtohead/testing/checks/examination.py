"""Evaluate every invariant of one entry; name the pitfalls of a recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headtohead.data.preparing import loaded_split
from headtohead.errors import HeadToHeadError
from headtohead.model.precision import one_thread
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.registry import Registered, current, find_dataset, require_override
from headtohead.schema.run_config import DataConfig
from headtohead.storage.experiment import Pitfall
from headtohead.testing import INVARIANTS, Invariant, Subject, Verdict
from headtohead.testing.checks.configurations import (
    DEFAULTS,
    ONLY,
    PATTERN,
    check_configurations,
    reduced,
)
from headtohead.testing.checks.entries import dataset_config, recipe_config
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetSubject


@dataclass(frozen=True)
class Statement:
    """The name and the statement of a check that is no invariant."""

    name: str
    statement: str


Result = tuple[Invariant | Statement, Verdict]
Verdicts = dict[tuple[str, str], Verdict]
"""Verdicts by configuration and invariant, shared by entries of several families."""

OF_LOGITS = (
    "causality",
    "pad-columns",
    "pad-content",
    "batch-of-one",
    "cached-decoding",
    "greedy-decoding",
    "members",
)
"""Invariants of the whole model, which apply to patterns of layers too; the others check the entry of a role."""


@dataclass(frozen=True)
class Examination:
    """The verdicts and pitfalls of one entry, variant or stack.

    Attributes:
        name: The entry, variant or stack.
        results: The checks with their verdicts.
        pitfalls: The pitfalls of a recipe.
        gaps: What was not checked, because it did not fit into the limits of time and memory.
    """

    name: str
    results: tuple[Result, ...]
    pitfalls: tuple[Pitfall, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether there are no unexpected violations."""
        return all(verdict.outcome != "violated" for _, verdict in self.results)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; infinity and NaN become null."""
        return {
            "name": self.name,
            "sound": self.is_sound,
            "invariants": [_result_to_json(check, verdict) for check, verdict in self.results],
            "pitfalls": [dict(vars(pitfall)) for pitfall in self.pitfalls],
            "not_checked": list(self.gaps),
        }


def _result_to_json(check: Invariant | Statement, verdict: Verdict) -> dict[str, Any]:
    number = verdict.number
    if number is not None and not math.isfinite(number):
        number = None
    return {
        "invariant": check.name,
        "statement": check.statement,
        "outcome": verdict.outcome,
        "number": number,
        "reason": verdict.reason,
        "cause": verdict.cause,
        "example": verdict.counterexample,
        "error": verdict.error,
    }


class MissingFilesError(HeadToHeadError):
    """The data is not available; the message names the missing file."""


def require_files(config: DataConfig, cache: Path) -> None:
    """Raise MissingFilesError unless the files of a dataset are available without a download."""
    dataset = find_dataset(config.dataset)
    if dataset.cache_key.__func__ is Dataset.cache_key.__func__:  # type: ignore[attr-defined]
        return  # without a cache key, the dataset is generated or ships with its plugin
    split = loaded_split(dataset, config.split)
    if dataset.cache_key(config.options, split, cache / "downloads") is None:
        raise MissingFilesError(
            f"no file: name one of {config.dataset} with --set data.file=PATH, or fetch it "
            f"with h2h data fetch {config.dataset}"
        )


def examine(
    entry: Registered, cache: Path, overrides: Sequence[str], verdicts: Verdicts
) -> Examination:
    """Evaluate every invariant of an entry's family; for a recipe, also find its pitfalls.

    Args:
        entry: The entry.
        cache: Folder of prepared data; nothing is downloaded.
        overrides: Fields of a recipe or dataset to override, such as ``"data.file=spa.txt"``.
        verdicts: Verdicts of other entries of this registry; new verdicts are added.

    Raises:
        HeadToHeadError: If the entry is incompatible with every small configuration, or a dataset cannot be loaded.
    """
    if entry.family == "dataset":
        return _examine_dataset(entry, cache, overrides)
    require_override(entry)
    with one_thread():
        if entry.family == "recipe":
            return _examine_recipe(entry, overrides)
        return _examine_component(entry, verdicts)


def _examine_dataset(entry: Registered, cache: Path, overrides: Sequence[str]) -> Examination:
    subject = _dataset_subject(entry, cache, overrides)
    results = [(invariant, evaluate(invariant, subject)) for invariant in DATASET_INVARIANTS]
    return Examination(entry.label, tuple(results))


def _examine_recipe(entry: Registered, overrides: Sequence[str]) -> Examination:
    config = recipe_config(entry.name, overrides)
    subject = Subject(reduced(config))
    results = [(invariant, evaluate(invariant, subject)) for invariant in INVARIANTS]
    return Examination(entry.label, tuple(results), find_pitfalls(config))


def _examine_component(entry: Registered, verdicts: Verdicts) -> Examination:
    subjects = []
    for description, config in check_configurations(entry):
        subjects.append((description, Subject(config)))
    if not subjects:
        raise HeadToHeadError(f"{entry.label} is incompatible with every small configuration")
    results = []
    for invariant in INVARIANTS:
        results.append((invariant, worst_verdict(invariant, subjects, verdicts)))
    return Examination(entry.label, tuple(results))


def evaluate(invariant: Invariant, subject: Subject | DatasetSubject) -> Verdict:
    """Return the verdict of an invariant; an error raised by a plugin is a violation."""
    try:
        return invariant(subject)
    except Exception as error:
        reason = str(error) if isinstance(error, HeadToHeadError) else current().describe(error)
        return Verdict("violated", None, f"raised {reason}", error=reason)


def worst_verdict(
    invariant: Invariant, subjects: Sequence[tuple[str, Subject]], verdicts: Verdicts
) -> Verdict:
    """Return the first unexpected violation with its configuration, else the first verdict.

    A known violation of another entry does not count for this entry. Invariants of a single entry are evaluated with
    the entry in several roles and default entries of the other families, and invariants that train stacks once.
    """
    if invariant.name not in OF_LOGITS:
        subjects = [(text, subject) for text, subject in subjects if not text.endswith(PATTERN)]
    if invariant.scope != "combination":
        # The descriptions of subjects with default entries in the other families.
        alone = [
            (text, subject) for text, subject in subjects if text == DEFAULTS or " in " in text
        ]
        subjects = alone or subjects
        # A fault of an entry's own code in one role is one with the entry in every role, too.
        in_several_roles = [
            (text, subject) for text, subject in subjects if not text.endswith(ONLY)
        ]
        subjects = in_several_roles or subjects
    if invariant.scope == "training":
        subjects = subjects[:1]
    evaluated = []
    for description, subject in subjects:
        key = (subject.config.model_dump_json(), invariant.name)
        if key not in verdicts:
            verdicts[key] = evaluate(invariant, subject)
        verdict = verdicts[key]
        if verdict.outcome != "violated":
            evaluated.append(verdict)
        elif description == DEFAULTS:
            return verdict
        else:
            return replace(verdict, reason=f"{verdict.reason} ({description})")
    return evaluated[0]


def _dataset_subject(entry: Registered, cache: Path, overrides: Sequence[str]) -> DatasetSubject:
    config = dataset_config(entry.name, overrides)
    try:
        require_files(config, cache)
        dataset = find_dataset(entry.name)
        return DatasetSubject.load(entry.name, dataset, config.options, cache / "downloads")
    except HeadToHeadError:
        raise
    except Exception as error:
        raise HeadToHeadError(
            f"{entry.label} cannot be loaded: {current().describe(error)}"
        ) from error

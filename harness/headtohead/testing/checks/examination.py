"""Examine one entry: evaluate every invariant, and name the pitfalls of a recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headtohead.data import PreparedData, prepare
from headtohead.data.preparing import dataset_options, loaded_split
from headtohead.errors import HeadToHeadError
from headtohead.model.operations import one_thread
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.registry import Registered, Registry, current, overrides_nothing
from headtohead.schema.run_config import DataConfig, RunConfig
from headtohead.storage.experiment import Pitfall
from headtohead.testing import INVARIANTS, Invariant, Subject, Verdict
from headtohead.testing.checks.configurations import DEFAULTS, check_configurations, reduced, varies_one_entry
from headtohead.testing.checks.entries import dataset_config, entry_label, recipe_config
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetInvariant, DatasetSubject
from headtohead.testing.invariants import PER_ENTRY, TRAINING
from headtohead.testing.shrinking import shrink

MAX_PAIRS = 100
"""Maximum size of a recipe's training set that its invariants use; larger data is replaced by generated words."""

HOOKS = "An entry overrides at least one hook of its family."

IDLE = "overrides no hook, so it computes the same as its base class; override a hook, or use the built-in entry"
"""What is wrong with an entry that computes the same as its base class."""

RAISED = "raised "
"""Start of the reason of a result if the entry raised an error."""

Outcome = Literal["holds", "violated", "known violation", "does not apply"]

Verdicts = dict[tuple[str, str], Verdict]
"""Verdicts by configuration and invariant, shared by entries of several families."""


@dataclass(frozen=True)
class InvariantResult:
    """The result of one invariant for one entry.

    Attributes:
        invariant: Name of the invariant.
        statement: What the invariant requires, in one sentence.
        outcome: ``known violation`` marks a violation that the entry or an option declares.
        number: The measured number that decides the outcome, if any.
        reason: Meaning of the number, or why the invariant does not apply.
        cause: The setting that declares the violation.
        example: The smallest example of the violation: which change moves which number by how much.
        error: The error raised by the entry, with its location, if any.
    """

    invariant: str
    statement: str
    outcome: Outcome
    number: float | None
    reason: str
    cause: str | None = None
    example: str | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; infinity and NaN become null."""
        number = self.number if self.number is not None and math.isfinite(self.number) else None
        return {**vars(self), "number": number}


@dataclass(frozen=True)
class Examination:
    """The invariants and pitfalls of one entry."""

    name: str
    results: tuple[InvariantResult, ...]
    pitfalls: tuple[Pitfall, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether there are no unexpected violations."""
        return all(result.outcome != "violated" for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "name": self.name,
            "sound": self.is_sound,
            "invariants": [result.to_json() for result in self.results],
            "pitfalls": [dict(vars(pitfall)) for pitfall in self.pitfalls],
        }


class MissingFilesError(Exception):
    """The data is not available; the message names the missing file."""


def require_files(config: DataConfig, registry: Registry, cache: Path) -> None:
    """Raise MissingFilesError unless the files of a dataset are available without a download."""
    dataset = registry.dataset(config.dataset)
    if dataset.cache_key.__func__ is Dataset.cache_key.__func__:  # type: ignore[attr-defined]
        return  # without a cache key, the dataset is generated or ships with its plugin
    options = dataset_options(config, dataset)
    split = loaded_split(dataset, config.split)
    if dataset.cache_key(options, split, cache / "downloads") is None:
        raise MissingFilesError(
            f"no file: name one of {config.dataset} with --set data.file=PATH, or fetch it "
            f"with h2h data fetch {config.dataset}"
        )


def examine(
    entry: Registered, registry: Registry, cache: Path, overrides: Sequence[str] = (), verdicts: Verdicts | None = None
) -> Examination:
    """Evaluate every invariant of an entry's family; for a recipe, also find its pitfalls.

    Args:
        entry: The entry.
        registry: The registry of this process.
        cache: Folder of prepared data; nothing is downloaded.
        overrides: Fields of a recipe or dataset to override, such as ``"data.file=spa.txt"``.
        verdicts: Verdicts of other entries of this registry; new verdicts are added.

    Raises:
        HeadToHeadError: If the entry is incompatible with every small configuration.
    """
    if entry.family == "dataset":
        return _examine_dataset(entry, registry, cache, overrides)
    with one_thread():
        if entry.family == "recipe":
            config = recipe_config(entry.name, registry, overrides)
            return _examine_recipe(entry_label(entry), config, registry, cache)
        subjects = [(description, Subject(config)) for description, config in check_configurations(entry, registry)]
        if not subjects:
            raise HeadToHeadError(f"{entry_label(entry)} is incompatible with every small configuration")
        verdicts = {} if verdicts is None else verdicts
        results = [_worst_result(invariant, subjects, verdicts) for invariant in INVARIANTS]
        if overrides_nothing(entry) and not entry.is_built_in:
            results.insert(0, InvariantResult("hooks", HOOKS, "violated", None, f"the entry {IDLE}"))
    return Examination(entry_label(entry), tuple(results))


def evaluate(invariant: Invariant, subject: Subject) -> Verdict:
    """Return the verdict of an invariant; an error raised by a plugin is a violation."""
    try:
        return invariant(subject)
    except Exception as error:
        reason = str(error) if isinstance(error, HeadToHeadError) else current().describe(error)
        return Verdict("violated", None, f"{RAISED}{reason}")


def is_unexpected(verdict: Verdict) -> bool:
    """Return whether a verdict is a violation that no entry or option declares."""
    return verdict.state == "violated" and verdict.cause is None


def invariant_result(invariant: Invariant | DatasetInvariant, verdict: Verdict, described: str = "") -> InvariantResult:
    """Return the result for a verdict.

    Args:
        invariant: The invariant.
        verdict: Its verdict.
        described: The other entries of the configuration, if they are not the defaults.
    """
    known = verdict.state == "violated" and verdict.cause is not None
    return InvariantResult(
        invariant.name,
        invariant.statement,
        "known violation" if known else verdict.state,
        verdict.number,
        f"{verdict.reason} (with {described})" if described else verdict.reason,
        verdict.cause,
        verdict.counterexample,
        verdict.reason.removeprefix(RAISED) if verdict.reason.startswith(RAISED) else None,
    )


def _examine_dataset(entry: Registered, registry: Registry, cache: Path, overrides: Sequence[str]) -> Examination:
    config = dataset_config(entry.name, registry, overrides)
    try:
        require_files(config, registry, cache)
    except MissingFilesError as error:
        raise HeadToHeadError(f"{entry_label(entry)}: {error}") from error
    dataset = registry.dataset(entry.name)
    options = dataset_options(config, dataset)
    results = []
    try:
        subject = DatasetSubject.load(entry.name, dataset, options, cache / "downloads")
    except HeadToHeadError:
        raise
    except Exception as error:
        raise HeadToHeadError(f"{entry_label(entry)} cannot be loaded: {registry.describe(error)}") from error
    for invariant in DATASET_INVARIANTS:
        try:
            verdict = invariant(subject)
        except Exception as error:
            verdict = Verdict("violated", None, f"{RAISED}{registry.describe(error)}")
        results.append(invariant_result(invariant, verdict))
    return Examination(entry_label(entry), tuple(results))


def _examine_recipe(name: str, config: RunConfig, registry: Registry, cache: Path) -> Examination:
    subject = Subject(reduced(config), data=_own_pairs(config.data, registry, cache))
    results = []
    for invariant in INVARIANTS:
        verdict = evaluate(invariant, subject)
        if is_unexpected(verdict):
            verdict = shrink(invariant, subject, verdict)
        results.append(invariant_result(invariant, verdict))
    return Examination(name, tuple(results), find_pitfalls(config, registry))


def _own_pairs(config: DataConfig, registry: Registry, cache: Path) -> PreparedData | None:
    """Return the data of a recipe if it is available and has at most ``MAX_PAIRS`` training pairs."""
    try:
        require_files(config, registry, cache)
    except MissingFilesError:
        return None
    data = prepare(config, cache, registry=registry)
    return data if len(data.splits["train"]) <= MAX_PAIRS else None


def _worst_result(invariant: Invariant, subjects: Sequence[tuple[str, Subject]], verdicts: Verdicts) -> InvariantResult:
    """Return the first unexpected violation with its configuration, else the first verdict.

    A known violation of another entry does not count for this entry. Invariants of a single entry are
    evaluated per role only, and invariants that train stacks once.
    """
    if invariant.name in PER_ENTRY:
        subjects = [subject for subject in subjects if varies_one_entry(subject[0])] or subjects
    first: Verdict | None = None
    for description, subject in subjects[: 1 if invariant.name in TRAINING else None]:
        key = subject.config.model_dump_json(), invariant.name
        if key not in verdicts:
            verdicts[key] = evaluate(invariant, subject)
        verdict = verdicts[key]
        if is_unexpected(verdict):
            example = shrink(invariant, subject, verdict)
            return invariant_result(invariant, example, "" if description == DEFAULTS else description)
        first = first or verdict
    assert first is not None
    return invariant_result(invariant, first)

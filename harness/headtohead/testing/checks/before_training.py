"""The checks of outside plugins before a study trains: once per source, at small sizes and as the study trains."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headtohead import files
from headtohead.config.entries import names_of, outside_entries, watched_entries
from headtohead.config.versions import versions
from headtohead.errors import HeadToHeadError
from headtohead.model.members import shape_key
from headtohead.model.plugin_errors import plugin_errors
from headtohead.model.precision import one_thread
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import Registered, current, require_override
from headtohead.schema.run_config import RunConfig, changed
from headtohead.testing import INVARIANTS, Subject
from headtohead.testing.checks.as_trained import Findings, PlannedStack, check_as_trained
from headtohead.testing.checks.configurations import reduced
from headtohead.testing.checks.examination import evaluate
from headtohead.testing.verdict import Verdict

AT_STUDY_DEPTH = ("mask-properties", "isolation")
"""Invariants that have the layers and the lengths of the study."""

CHECKED = (*COMPONENTS, "quirk")
"""The families whose entries build or change a model."""

FOLDER = "checked-plugins"
"""Folder of the cache with a record for each variant and each stack that passed."""


def check_before_training(
    stacks: Iterable[PlannedStack], cache: Path, log: Callable[[str], object]
) -> None:
    """Check variants with components or quirks of outside plugins before training, and the largest stack of each shape.

    What passed is recorded in the cache by configuration, sources, data and versions, and not checked again.

    Raises:
        HeadToHeadError: With the entry and the check that it violates, or the error that it raised.
    """
    checked = set()
    for stack in sorted(stacks, key=lambda stack: len(stack.seeds), reverse=True):
        entries = checked_entries(stack.configs)
        if not entries:
            continue
        for config in different(stack.configs):
            check_small(config, stack, cache, log)
        key = stack_key(stack)
        if key in checked:
            continue  # a larger stack of the same shape
        checked.add(key)
        check_stack(stack, key, cache, log)


def different(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """Return each configuration once; options with lists have no hash."""
    return list({config.model_dump_json(): config for config in configs}.values())


def checked_entries(configs: Iterable[RunConfig]) -> list[Registered]:
    """Return the entries of outside plugins that build or change the models of configurations."""
    return [
        entry for config in configs for entry in outside_entries(config) if entry.family in CHECKED
    ]


@dataclass(frozen=True)
class Passed:
    """The record of what passed, in the cache.

    Args:
        path: The file.
    """

    path: Path

    @classmethod
    def of(cls, cache: Path, content: Any) -> Passed:
        """Return the record of a check, by the hash of what it depends on."""
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return cls(cache / FOLDER / f"{digest}.json")

    def read(self) -> Mapping[str, Any] | None:
        """Return the stored result, or None."""
        try:
            stored = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return None
        return stored if isinstance(stored, dict) else None

    def write(self, result: Mapping[str, Any]) -> None:
        """Store the result."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(self.path, dict(result))


def _sources(configs: Iterable[RunConfig]) -> list[str | None]:
    """Return what the code of outside plugins and the checks depend on."""
    # An entry may import others of its plugin, so that the sources of all of them count.
    entries = [entry for config in configs for entry in outside_entries(config)]
    sources = sorted({sha256 for entry in entries for sha256 in entry.hashes.values()})
    current_versions = versions()
    return [*sources, current_versions["headtohead"], current_versions["torch"]]


# -- small sizes -----------------------------------------------------------------------------------


def check_small(
    config: RunConfig, stack: PlannedStack, cache: Path, log: Callable[[str], object]
) -> None:
    """Check every invariant of a variant at small sizes, with its options, layers and lengths.

    Raises:
        HeadToHeadError: With the entry and the invariant that it violates.
    """
    entries = checked_entries([config])
    if not entries:
        return
    longest = stack.data.record["longest"]
    small = small_config(config)
    passed = Passed.of(
        cache, [small.model_dump(mode="json"), _layers(config), _sources([config]), longest]
    )
    if passed.read() is not None:
        return
    log(f"checking {names_of(entries)} before the first run")
    for entry in entries:
        require_override(entry)
    for name, verdict in small_verdicts(config, longest).items():
        if verdict.outcome == "violated" and not verdict.is_undeclared:
            raise HeadToHeadError(violation_text(entries, name, verdict, "at small sizes"))
    passed.write({"entries": names_of(entries)})


def small_verdicts(config: RunConfig, longest: Mapping[str, int]) -> dict[str, Verdict]:
    """Return the verdicts of all invariants on a variant at small sizes, up to the first violation."""
    small = small_config(config)
    # Layers can differ, so that some invariants have as many as the variant; a quirk can change a single layer.
    lengths = longest["source"], longest["target"] - 1
    deep = Subject(changed(small, model=_layers(config)), longest=lengths)
    subject = Subject(small)
    has_quirk = any(entry.family == "quirk" for entry in checked_entries([config]))
    verdicts = {}
    with one_thread(), watched_entries([config]):
        for invariant in INVARIANTS:
            is_deep = has_quirk or invariant.name in AT_STUDY_DEPTH
            chosen = deep if is_deep else subject
            verdicts[invariant.name] = evaluate(invariant, chosen)
            verdict = verdicts[invariant.name]
            if verdict.outcome == "violated" and not verdict.is_undeclared:
                break
    return verdicts


def small_config(config: RunConfig) -> RunConfig:
    """Return a variant at small sizes; with its own width and heads where an entry requires them."""
    small = reduced(config)
    if find_incompatibility(small, {}) is None:
        return small
    return small.model_copy(update={"model": changed(config, model=_layers(small)).model})


def _layers(config: RunConfig) -> dict[str, int]:
    model = config.model
    return {"encoder_layers": model.encoder_layers, "decoder_layers": model.decoder_layers}


# -- sizes of the study ----------------------------------------------------------------------------


def stack_key(stack: PlannedStack) -> str:
    """Return what stacks have in common for which a single check suffices, as JSON: all but their members."""
    config = stack.configs[0]
    kinds = {
        json.dumps(
            [config.positional.model_dump(mode="json"), config.masking.model_dump(mode="json")]
        )
        for config in stack.configs
    }
    content = [
        shape_key(config),
        sorted(kinds),
        stack.data.data_hash,
        _sources(stack.configs),
    ]
    return json.dumps(content, sort_keys=True)


def check_stack(stack: PlannedStack, key: str, cache: Path, log: Callable[[str], object]) -> None:
    """Check a stack as it will train, unless a stack with as many members has passed.

    Raises:
        HeadToHeadError: With the entry and the check that it violates.
    """
    passed = Passed.of(cache, key)
    stored = passed.read()
    if stored is not None and stored.get("members", 0) >= len(stack.seeds):
        return
    entries = checked_entries(stack.configs)
    findings = examine_stack(stack)
    if findings.violation is not None:
        check, verdict = findings.violation.check, findings.violation.verdict
        raise HeadToHeadError(violation_text(entries, check, verdict, f"with {findings.sizes}"))
    text = f"checked {names_of(entries)} as it will train: {findings.sizes}"
    if findings.not_checked:
        text += f"; not checked: {', '.join(findings.not_checked)}"
    log(text)
    passed.write({"entries": names_of(entries), "members": len(stack.seeds)})


def examine_stack(stack: PlannedStack) -> Findings:
    """Return the findings of a stack as it will train.

    Raises:
        HeadToHeadError: As `plugin_errors` for an error in the code of a plugin, and if the code changes what all
            variants share, or reads what it does not declare.
    """
    with plugin_errors(*stack.configs), watched_entries(stack.configs):
        return check_as_trained(stack)


def violation_text(entries: Iterable[Registered], name: str, verdict: Verdict, where: str) -> str:
    """Return the error of a violation."""
    named = list(entries)
    reason = verdict.error or verdict.counterexample or verdict.reason
    command = current().check_command(named[0])
    return (
        f"{names_of(named)} violates '{name}' {where}: {reason}; "
        f"correct the plugin, and test it with '{command}'"
    )

"""The checks of external plugin code before a study trains: a few seconds, once per version of the source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from headtohead import files
from headtohead.config.builder import FAMILIES
from headtohead.config.entries import plugins_of
from headtohead.config.versions import versions
from headtohead.errors import HeadToHeadError
from headtohead.model.operations import one_thread
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import Registered, Registry, overrides_nothing
from headtohead.schema.run_config import RunConfig
from headtohead.testing import INVARIANTS, Subject
from headtohead.testing.checks.configurations import reduced
from headtohead.testing.checks.entries import entry_label
from headtohead.testing.checks.examination import IDLE, evaluate
from headtohead.testing.tiny import changed

QUICK = ("determinism", "members", "finite", "stacking")
"""Names of the invariants that are checked; building the model checks the member axis of every tensor."""

FOLDER = "checked-plugins"
"""Folder of the cache with a file for each use of an entry that passed."""


def check_plugins(
    configs: Iterable[RunConfig], registry: Registry, cache: Path, log: Callable[[str], object] = lambda line: None
) -> None:
    """Check the external encodings, styles and masks of variants, at small sizes and with their options.

    A use that passed is recorded in the cache by the hash of its source, and not checked again.

    Args:
        configs: The variants to train.
        registry: The registry of this process.
        cache: The folder of the cache.
        log: Receives a line before the first check.

    Raises:
        HeadToHeadError: With the entry and the invariant that it violates, or the error that it raised.
    """
    passed: set[Path] = set()
    for config in configs:
        uses = {cache / FOLDER / f"{key}.json": entry for key, entry in _uses(config, registry)}
        missing = [path for path in uses if path not in passed and not path.is_file()]
        if not missing:
            continue
        names = sorted({entry_label(uses[path]) for path in missing})
        log(f"checking {' and '.join(names)} before the first run")
        for path in missing:
            if overrides_nothing(uses[path]):
                raise HeadToHeadError(f"{entry_label(uses[path])} {IDLE}")
        _check(_small(config, registry), names)
        for path in missing:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(path, {"entry": entry_label(uses[path]), "invariants": QUICK})
        passed.update(missing)


def _uses(config: RunConfig, registry: Registry) -> Iterator[tuple[str, Registered]]:
    """Yield the external entries in their roles, with a hash of their options, their source and the versions."""
    sources = sorted(
        entry.source_sha256
        for entry in plugins_of(config, registry)
        if not entry.is_built_in and entry.family in FAMILIES
    )
    for family in FAMILIES:
        for role, chosen in getattr(config, family).by_role().items():
            entry = registry.find(family, chosen.name)
            if not entry.is_built_in:
                known = [versions()[name] for name in ("headtohead", "torch")]
                content = [family, role, chosen.model_dump(mode="json"), sources, known]
                yield hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(), entry


def _check(config: RunConfig, names: list[str]) -> None:
    with one_thread():
        subject = Subject(config)
        for invariant in (invariant for invariant in INVARIANTS if invariant.name in QUICK):
            verdict = evaluate(invariant, subject)
            if verdict.outcome == "violated":
                reason = verdict.error or verdict.reason
                number = "" if verdict.number is None else f" ({verdict.number:.3g})"
                raise HeadToHeadError(
                    f"{' or '.join(names)} violates '{invariant.name}': {reason}{number}; correct the plugin, and test "
                    f"it with 'h2h check {names[0]}'"
                )


def _small(config: RunConfig, registry: Registry) -> RunConfig:
    """Return a variant at small sizes; with its own width and heads where an entry requires them."""
    small = reduced(config)
    if find_incompatibility(small, {}, registry) is None:
        return small
    layers = {name: getattr(small.model, name) for name in ("encoder_layers", "decoder_layers")}
    return small.model_copy(update={"model": changed(config, model=layers).model})

"""The checks of external plugin code before a study trains: a few seconds, once per version of the source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headtohead import files
from headtohead.config.builder import FAMILIES
from headtohead.config.entries import plugins_of
from headtohead.config.versions import versions
from headtohead.errors import HeadToHeadError
from headtohead.model.precision import one_thread
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import Registry, require_override
from headtohead.plugins.watched_reads import WatchedReads, code_of, require_declared
from headtohead.schema.run_config import RunConfig, changed
from headtohead.testing import INVARIANTS, Subject
from headtohead.testing.checks.configurations import reduced
from headtohead.testing.checks.examination import evaluate

QUICK = (
    "mask-properties",
    "finite",
    "members",
    "determinism",
    "causality",
    "batch-of-one",
    "pad-columns",
    "pad-content",
    "cached-decoding",
    "stacking",
    "isolation",
)
"""Invariants whose violation makes scores wrong, in the order of the checks.

Building the model checks the member axis of tensors.
"""

DEEP = ("mask-properties", "isolation")
"""Invariants that have the layers and the lengths of the study."""

FOLDER = "checked-plugins"
"""Folder of the cache with a file for the external entries of each variant that passed."""


def check_plugins(
    configs: Iterable[tuple[RunConfig, Mapping[str, int]]],
    registry: Registry,
    cache: Path,
    log: Callable[[str], object],
) -> None:
    """Check the external encodings, styles and masks of variants, at small sizes and with their options and lengths.

    What passed is recorded in the cache by the hash of its small configuration, sources and versions, and not checked
    again. Each variant is given with the number of tokens of its longest source and target.

    Raises:
        HeadToHeadError: With the entry and the invariant that it violates, or the error that it raised.
    """
    by_name = {invariant.name: invariant for invariant in INVARIANTS}
    for config, longest in configs:
        external = {
            found.label: found
            for family in FAMILIES
            for chosen in getattr(config, family).by_role().values()
            if not (found := registry.find(family, chosen.name)).is_built_in
        }
        if not external:
            continue
        # An entry may import others of its plugin, so that the sources of all of them count.
        used = [entry for entry in plugins_of(config, registry) if not entry.is_built_in]
        sources = sorted(sha256 for entry in used for sha256 in entry.hashes.values())
        known = [*QUICK, *(versions()[name] for name in ("headtohead", "torch"))]
        small, layers = _small(config, registry), _layers(config)
        content = [small.model_dump(mode="json"), layers, sources, known, longest]
        path = cache / FOLDER / f"{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}.json"
        if path.is_file():
            continue
        names = sorted(external)
        log(f"checking {' and '.join(names)} before the first run")
        for entry in external.values():
            require_override(entry)
        code = [path for entry in used for path in code_of(entry.entry.__module__)]
        with one_thread(), WatchedReads(code) as watch:
            # Layers can differ, so that one invariant has as many as the variant.
            reached = longest["source"], longest["target"] - config.quirks.shift_targets
            deep = Subject(changed(small, model=layers), longest=reached)
            subject = Subject(small)
            for name in QUICK:
                verdict = evaluate(by_name[name], deep if name in DEEP else subject)
                if verdict.outcome == "violated":
                    number = "" if verdict.number is None else f" ({verdict.number:.3g})"
                    raise HeadToHeadError(
                        f"{' or '.join(names)} violates '{name}': {verdict.error or verdict.reason}{number}; "
                        f"correct the plugin, and test it with '{registry.check_command(external[names[0]])}'"
                    )
        # What a hook reads when it is called, after the construction of its component.
        first = external[names[0]]
        reads = [read for entry in used for read in entry.reads]
        require_declared(first.entry, first.entry.Options(), watch, reads)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {"entries": names, "invariants": QUICK})


def _small(config: RunConfig, registry: Registry) -> RunConfig:
    """Return a variant at small sizes; with its own width and heads where an entry requires them."""
    small = reduced(config)
    if find_incompatibility(small, {}, registry) is None:
        return small
    return small.model_copy(update={"model": changed(config, model=_layers(small)).model})


def _layers(config: RunConfig) -> dict[str, int]:
    return {name: getattr(config.model, name) for name in ("encoder_layers", "decoder_layers")}

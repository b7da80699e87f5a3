"""The checks of external plugin code before a study trains: a few seconds, once per version of the source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import sub as subtract
from pathlib import Path

import torch

from headtohead import files
from headtohead.config.builder import FAMILIES
from headtohead.config.entries import plugins_of
from headtohead.config.versions import versions
from headtohead.data.vocabulary import SPECIALS
from headtohead.errors import HeadToHeadError
from headtohead.model.precision import one_thread
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import Registry, require_override
from headtohead.schema.run_config import RunConfig
from headtohead.testing import INVARIANTS, Subject
from headtohead.testing.checks.configurations import reduced
from headtohead.testing.checks.examination import evaluate
from headtohead.testing.subject import forward
from headtohead.testing.tiny import changed

QUICK = (
    "finite",
    "members",
    "determinism",
    "causality",
    "batch-of-one",
    "pad-columns",
    "pad-content",
    "cached-decoding",
    "stacking",
)
"""Invariants whose violation makes scores wrong, in the order of the checks.

Building the model checks the member axis of tensors.
"""

MAX_LENGTH, ROUNDING = 2048, 1e-9
"""Largest number of tokens of a checked target; largest change of a logit by rounding in float64."""

FOLDER = "checked-plugins"
"""Folder of the cache with a file for the external entries of each variant that passed."""


def check_plugins(
    configs: Iterable[tuple[RunConfig, int]], registry: Registry, cache: Path, log: Callable[[str], object]
) -> None:
    """Check the external encodings, styles and masks of variants, at small sizes and with their options and lengths.

    What passed is recorded in the cache by the hash of sources, roles, options and versions, and not checked again.

    Args:
        configs: The variants to train, with the number of tokens of their longest target.
        registry: The registry of this process.
        cache: The folder of the cache.
        log: Receives a line before the first check.

    Raises:
        HeadToHeadError: With the entry and the invariant that it violates, or the error that it raised.
    """
    by_name = {invariant.name: invariant for invariant in INVARIANTS}
    for config, longest in configs:
        uses = [
            (registry.find(family, chosen.name), role, chosen.model_dump(mode="json"))
            for family in FAMILIES
            for role, chosen in getattr(config, family).by_role().items()
        ]
        external = [use for use in uses if not use[0].is_built_in]
        if not external:
            continue
        # An entry may import others of its plugin, so that the sources of all of them count.
        sources = sorted(entry.source_sha256 for entry in plugins_of(config, registry) if not entry.is_built_in)
        known = [*QUICK, *(versions()[name] for name in ("headtohead", "torch"))]
        content = [[(entry.family, *use) for entry, *use in external], sources, known, longest]
        path = cache / FOLDER / f"{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}.json"
        if path.is_file():
            continue
        names = sorted({entry.label for entry, *_ in external})
        log(f"checking {' and '.join(names)} before the first run")
        for entry, *_ in external:
            require_override(entry)
        with one_thread():
            subject = Subject(_small(config, registry))
            for name in QUICK:
                verdict = evaluate(by_name[name], subject)
                if verdict.outcome == "violated":
                    number = "" if verdict.number is None else f" ({verdict.number:.3g})"
                    raise HeadToHeadError(
                        f"{' or '.join(names)} violates '{name}': {verdict.error or verdict.reason}{number}; "
                        f"correct the plugin, and test it with 'h2h check {names[0]}'"
                    )
            if fault := _fault_in_training(subject, min(longest, MAX_LENGTH) - 1):
                raise HeadToHeadError(f"{' or '.join(names)} violates {fault}; correct the plugin")
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {"entries": names, "invariants": QUICK})


def _fault_in_training(subject: Subject, time: int) -> str:
    """Return what targets of ``time`` tokens show in evaluation and training mode: a visible future, changed state."""
    model, first = subject.model, len(SPECIALS)
    sentences = subject.random_sentences((((1, max(time, 2)),),) * len(subject.seeds))
    half, state = sentences.target.shape[-1] // 2, {name: own.clone() for name, own in model.named_buffers()}
    later = sentences.target.clone()
    later[..., half:] = first + (later[..., half:] - first + 1) % (subject.vocab_sizes[1] - first)
    for training in (False, True):
        model.train(training)
        logits = (forward(model, replace(sentences, target=target)).detach() for target in (sentences.target, later))
        change = float(subtract(*logits)[:, :, :half].abs().max())
        if moved := [name for name, own in model.named_buffers() if not torch.equal(own, state[name])]:
            return f"'stateless': training changes {moved[0]}, so microbatches would change results"
        if subject.is_causal and not change < ROUNDING:
            return f"'causality' in targets of {time} tokens: later tokens change earlier logits ({change:.3g})"
    return ""


def _small(config: RunConfig, registry: Registry) -> RunConfig:
    """Return a variant at small sizes; with its own width and heads where an entry requires them."""
    small = reduced(config)
    if find_incompatibility(small, {}, registry) is None:
        return small
    layers = {name: getattr(small.model, name) for name in ("encoder_layers", "decoder_layers")}
    return small.model_copy(update={"model": changed(config, model=layers).model})

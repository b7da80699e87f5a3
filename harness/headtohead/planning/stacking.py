"""Which runs train together: stacks of equal shape, as large as pays, and as many as keep busy."""

from __future__ import annotations

import hashlib
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.model.counting import LOGITS_AT_ONCE, training_bytes
from headtohead.model.members import OF_MEMBERS, shape
from headtohead.model.sizes import find_rows
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig

if TYPE_CHECKING:
    from headtohead.planning.plan import Plan, PlannedRun

ENOUGH = 27_000_000
"""Numbers that the members of a stack may hold at once on a CPU before more of them slow it down.

Measured (docs/internals/performance.md): up to 36 members of 0.02 and 0.4 million numbers each were
the faster the more there were; 4 of 7 million each went as fast as apart, and 2 of 18 million
slower by 2 to 5 %.
"""

MOST = {"cpu": 64, "cuda": 128}
"""Members of a stack, whatever is measured."""

PROCESS = 2**29
"""Bytes of a training process whatever it trains: torch, its kernels, prepared data."""

FILLED = 0.8
"""Share of the memory that stacks may fill: the rest is lost between blocks, or kernels need it."""

ROUGH = 16
"""Copies of ``activations`` below which a step stays, so that it need not be traced."""

FULL = 2_500_000
"""Numbers from which a stack of one variant's runs is kept to itself on a CPU.

More members of other variants would bring it nothing, and tables of each member's own cost a tenth
(docs/internals/performance.md).
"""


def processors(device: str) -> int:
    """Return how many cores or GPUs of this machine the process may use; no GPU is 0."""
    if device == "cuda":
        import torch

        return torch.cuda.device_count()
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


Key = tuple[str, str]
"""What runs that may train together share: their shape, and their variant where it is by itself."""

SIZES = "stack-sizes.json"
"""File beside the prepared data: members that pay, by machine and digest of the shape."""


def load_stack_sizes(cache: Path, device: str) -> dict[str, int]:
    """Return the sizes that were measured on this machine, by the digest of their shape.

    None were if the device is not in this machine: a cluster's GPUs are elsewhere.
    """
    return measured_sizes(cache).get(machine(device), {}) if processors(device) else {}


def measured_sizes(cache: Path) -> dict[str, dict[str, int]]:
    """Return what was measured on any machine."""
    try:
        kept: dict[str, dict[str, int]] = files.read_json(cache / SIZES)
    except (FileNotFoundError, HeadToHeadError):
        return {}
    return kept


def digest(name: str) -> str:
    """Return the short name of a shape."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def machine(device: str) -> str:
    """Return what times depend on beside the shape."""
    import torch

    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.node()}, {platform.machine()}, torch {torch.__version__}"


def activations(config: RunConfig, source_words: int, target_words: int) -> int:
    """Return about how many numbers one member holds while a step is trained."""
    model, train = config.model, config.train
    tokens = train.batch_tokens if train.batch_size is None else train.batch_size * 16
    inside = sum(_layers(config)) * (10 * model.d_model + model.d_ff)
    return tokens * (inside + find_rows(config, source_words, target_words).target)


def _layers(config: RunConfig) -> tuple[int, int]:
    """Return the layers of encoder and decoder."""
    model = config.model
    return model.encoder_layers, model.decoder_layers


def arrange(
    plan: Plan, runs: Sequence[PlannedRun], workers: int, device: str, sizes: Mapping[str, int], memory: int
) -> list[list[PlannedRun]]:
    """Return which of the runs train together.

    Stacks of one shape are as equal in size as can be, no larger than pays or fits into memory, and
    at least as many as there are processes to train them, where there are enough runs. Runs that
    are most alike stand side by side, and a variant whose runs fill a stack has its own.

    Args:
        plan: What the runs belong to.
        runs: What is to be trained.
        workers: Processes that train at once.
        device: ``"cpu"`` or ``"cuda"``.
        sizes: Members that pay, by the digest of the shape, where that was measured; else it is
            estimated.
        memory: Bytes that the process of one stack may use.
    """
    registry = current()
    configs = {run.variant: plan.by_slug[run.variant].config for run in runs}
    shapes = {slug: shape(config, registry) for slug, config in configs.items()}
    likeness = {slug: _likeness(config) for slug, config in configs.items()}
    found: dict[Key, list[PlannedRun]] = {}
    seeds = Counter(run.variant for run in runs)
    for run in runs:
        full = device == "cpu" and seeds[run.variant] * _numbers(plan, run) >= FULL
        found.setdefault((shapes[run.variant], run.variant if full else ""), []).append(run)
    for members in found.values():
        members.sort(key=lambda run: likeness[run.variant])
    counts = {}
    for key, members in found.items():
        pays = sizes.get(digest(key[0])) or _estimated(plan, members[0], device)
        most = _fitting(plan, members[0], min(pays, len(members)), memory)
        counts[key] = math.ceil(len(members) / most)
    _keep_busy(counts, {key: len(members) for key, members in found.items()}, workers)
    return [part for key, members in found.items() for part in _cut(members, counts[key])]


def _likeness(config: RunConfig) -> tuple[str, ...]:
    """Return what runs are sorted by: first what an optimizer step needs to be in one piece."""
    rates = {name: getattr(config.train, name) for name in sorted(OF_MEMBERS["train"])}
    return repr(rates), config.positional.model_dump_json(), config.masking.model_dump_json()


def _estimated(plan: Plan, run: PlannedRun, device: str) -> int:
    if device != "cpu":
        return MOST["cuda"]
    return max(1, min(MOST["cpu"], ENOUGH // _numbers(plan, run)))


def _fitting(plan: Plan, run: PlannedRun, wanted: int, memory: int) -> int:
    """Return how many members, up to ``wanted``, a step has memory for; at least one."""
    variant, data = plan.by_slug[run.variant], plan.data_of(run.variant)
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    evaluate, longest = variant.config.evaluate, data.record["longest"]["target"]
    logits = wanted * evaluate.batch_size * longest * find_rows(variant.config, *words).target
    # An evaluation holds logits, their logarithms and the losses' share of them.
    room = FILLED * (memory - PROCESS - 12 * min(LOGITS_AT_ONCE, logits))
    batch = largest_batch(variant.config, data.record["longest"])
    rows, *times = batch
    encoder, decoder = _layers(variant.config)
    scores = (encoder + 2 * decoder) * variant.config.model.heads * rows * max(times) ** 2
    rough = 4 * (4 * variant.counts.total + ROUGH * (_numbers(plan, run) + scores))
    if wanted * rough <= room:
        return wanted
    return max(1, min(wanted, int(room // training_bytes(variant.config, *words, batch))))


def largest_batch(config: RunConfig, longest: Mapping[str, int]) -> tuple[int, int, int]:
    """Return rows, source time and target time of a batch of the longest sentences."""
    train, times = config.train, (longest["source"], longest["target"])
    if train.batch_size is None:
        return max(1, train.batch_tokens // max(times)), *times
    if isinstance(config.quirks.pad_to, int):
        return train.batch_size, config.quirks.pad_to, config.quirks.pad_to
    return train.batch_size, *(times if config.quirks.pad_to == "batch" else (max(times),) * 2)


def _numbers(plan: Plan, run: PlannedRun) -> int:
    data = plan.data_of(run.variant)
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    return activations(plan.by_slug[run.variant].config, *words)


def _keep_busy(counts: dict[Key, int], runs: Mapping[Key, int], workers: int) -> None:
    """Cut further where processes would stand idle: in the last round too, if rounds are few."""
    while counts:
        total = sum(counts.values())
        if total >= 4 * workers or (total >= workers and total % workers == 0):
            return
        largest = max(counts, key=lambda key: runs[key] / counts[key])
        if counts[largest] >= runs[largest]:
            return
        counts[largest] += 1


def _cut(runs: Sequence[PlannedRun], count: int) -> list[list[PlannedRun]]:
    """Cut into parts whose sizes differ by one at most."""
    edges = [len(runs) * part // count for part in range(count + 1)]
    return [list(runs[start:end]) for start, end in pairwise(edges)]

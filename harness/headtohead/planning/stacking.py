"""Divide runs into stacks of equal shape, with sizes that train fast and fit into memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from headtohead.model.geometry import vocab_sizes
from headtohead.model.loss import max_chunk_logits
from headtohead.model.members import shape_key
from headtohead.planning.compatibility import longest_sequences
from headtohead.plugins.launcher import Launcher, cpu_cores
from headtohead.plugins.registry import calling, find_positional, registered
from headtohead.schema.choices import PRECISIONS
from headtohead.schema.roles import Role
from headtohead.schema.run_config import RunConfig

if TYPE_CHECKING:
    from headtohead.planning.lookup import PlannedRun
    from headtohead.planning.plan import Plan

MAX_CPU_NUMBERS = 18_000_000
"""Numbers (weights and activations without logits) of all members above which a larger stack is slower on a CPU.

Logits are computed in chunks, so their number does not grow with the stack. Measured (benchmarks/results.md): with 0.02
to 0.4 million numbers per member, more members were faster, up to 32; 4 members of 4.5 million were as fast as separate
runs, and 2 members of 10 million were 2 to 5 % slower.
"""

MAX_MEMBERS = {"cpu": 64, "cuda": 128}
"""Maximum number of members of a stack by device."""

PROCESS_BYTES = 2**29
"""Memory of a training process without its model: torch, its kernels, prepared data."""

MEMORY_FRACTION = 0.8
"""Fraction of the memory that stacks may use; the rest is lost to fragmentation or needed by kernels."""

ACTIVATION_COPIES = 2.5
SCORE_COPIES = 7
FUSED_SCORE_COPIES = 2
"""Numbers that a training step stores per activation and per attention score, gradients included.

A fused path without dropout and without a bias per sentence stores no weights.
"""

EVALUATION_COPIES = 2.9
EXPLICIT_EVALUATION_SCORES = 3
"""Numbers that an evaluation stores per activation of a layer, and per score of a layer on the explicit path.

An evaluation stores the activations of a single layer, but has larger batches than a training step. With these numbers,
the peak of the measured studies of benchmarks/memory.py is 0.7 to 1.0 of `stack_bytes`.
"""

LOGIT_COPIES = 4
"""Logits of a chunk, their logarithms and their gradients, or the same logits in another precision."""

CAPTURED_COPIES = 2
"""A captured step has separate memory, in addition to that of the eager steps that verify it."""

OWN_STACK_NUMBERS = 2_500_000
"""Numbers of the runs with equal encodings and masks from which they get a stack of their own on a CPU.

Members with others would not make such a stack faster, and per-member tables cost 10 %
(benchmarks/results.md).
"""


def processors(device: str) -> int:
    """Return the number of CPU cores or GPUs that this process may use; 0 without a GPU."""
    if device == "cuda":
        import torch

        return torch.cuda.device_count()
    return cpu_cores()


class Group(NamedTuple):
    """What runs of a stack share: the shapes of their tensors and, with enough runs, encodings and masks."""

    shape: str
    entries: str


def arrange(
    plan: Plan, runs: Sequence[PlannedRun], workers: int, device: str, memory: int
) -> list[list[PlannedRun]]:
    """Return the runs of each stack; no stacks without runs.

    Runs whose tensors have the same shapes can share a stack; their stacks differ in size by at most 1. A stack is not
    larger than its estimated fastest size and fits into memory, or has a single run. There are at least as many stacks
    as processes if there are enough runs. Similar runs are put into the same stack. On a CPU, runs with the same
    encodings and masks get stacks without other runs, if they are large enough (`OWN_STACK_NUMBERS`).

    Args:
        plan: The plan of the runs.
        runs: The runs to divide; each is in one stack.
        workers: The number of processes, at least 1.
        device: ``"cpu"`` or ``"cuda"``.
        memory: Bytes of memory for each process, on the device.

    Raises:
        HeadToHeadError: If the code of a positional encoding that is a plugin fails.
    """
    groups = _groups(plan, runs, device)
    num_runs = {group: len(members) for group, members in groups.items()}
    num_stacks = {}
    for group, members in groups.items():
        variant = plan.variant_of(members[0])
        fastest = fastest_members(variant.config, variant.record.counts.total, device)
        size = _fitting(plan, members[0], min(fastest, len(members)), device, memory)
        num_stacks[group] = math.ceil(len(members) / size)
    _keep_busy(num_stacks, num_runs, workers)
    stacks = []
    for group, members in groups.items():
        count = num_stacks[group]
        edges = [len(members) * index // count for index in range(count + 1)]
        for start, end in pairwise(edges):
            stacks.append(members[start:end])
    return stacks


def _groups(plan: Plan, runs: Sequence[PlannedRun], device: str) -> dict[Group, list[PlannedRun]]:
    """Return the runs that can share stacks, by what they share, similar runs next to each other.

    ``Group.entries`` is set on a CPU only, for runs with so many activations that each pair of encodings and masks gets
    stacks of its own; elsewhere it is empty.
    """
    group_of: dict[str, Group] = {}
    sort_key_of: dict[str, list[str]] = {}
    for slug in {run.variant for run in runs}:
        config = plan.by_slug[slug].config
        train = config.train.model_dump_json()
        positional = config.positional.model_dump_json()
        masking = config.masking.model_dump_json()
        group_of[slug] = Group(shape_key(config), positional + masking)
        # Members with equal optimizer settings are next to each other, since they share one optimizer step.
        sort_key_of[slug] = [train, positional, masking]
    num_alike = Counter(group_of[run.variant] for run in runs)
    groups: dict[Group, list[PlannedRun]] = {}
    for run in runs:
        group = group_of[run.variant]
        numbers = num_alike[group] * _activations(plan, run)
        is_separate = device == "cpu" and numbers >= OWN_STACK_NUMBERS
        shared = group if is_separate else group._replace(entries="")
        groups.setdefault(shared, []).append(run)
    for members in groups.values():
        members.sort(key=lambda run: sort_key_of[run.variant])
    return groups


def _keep_busy(num_stacks: dict[Group, int], num_runs: Mapping[Group, int], workers: int) -> None:
    """Increase the numbers of stacks, so that no process waits for the others at the end.

    Enough are four stacks per process, or a total that is a smaller multiple of the number of processes. Each time,
    the group with the largest stacks gets one more. It ends earlier if all stacks have a single run.

    Args:
        num_stacks: The number of stacks of each group, at least 1, changed in place; nothing happens if it is empty.
        num_runs: The number of runs of each group.
        workers: The number of processes, at least 1.
    """
    while num_stacks:
        total = sum(num_stacks.values())
        is_even = total >= workers and total % workers == 0
        if total >= 4 * workers or is_even:
            return
        largest = max(num_stacks, key=lambda group: num_runs[group] / num_stacks[group])
        if num_stacks[largest] >= num_runs[largest]:
            return
        num_stacks[largest] += 1


def local_stacks(plan: Plan) -> list[list[PlannedRun]]:
    """Return the stacks in which this machine would train the remaining runs."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    workers = processors(device)
    return arrange(plan, plan.remaining, workers, device, Launcher().memory(device, workers))


def fastest_members(config: RunConfig, parameters: int, device: str) -> int:
    """Return the estimated number of members with which a stack trains the most runs per second."""
    if device != "cpu":
        return MAX_MEMBERS["cuda"]
    numbers = parameters + _tokens(config) * _activations_per_token(config)
    return max(1, min(MAX_MEMBERS["cpu"], MAX_CPU_NUMBERS // numbers))


def training_bytes(plan: Plan, run: PlannedRun) -> int:
    """Return the estimated memory in bytes of a run as a member of a stack in training.

    It has weights, gradients, optimizer moments, activations and attention scores, those of a training step or of an
    evaluation, whichever are more, and with greedy decoding the logits of a decoding step. The logits of training,
    which the members of a stack share in chunks, are left out.

    Raises:
        KeyError: If the run's variant is none of the plan.
        HeadToHeadError: If the code of a positional encoding that is a plugin fails.
    """
    config = plan.variant_of(run).config
    counts = plan.variant_of(run).record.counts
    longest = plan.data_of(run).record["longest"]
    model = config.model
    length = _length(config, longest)
    rows = _rows(config, longest)
    d_ff_copies = 2 if _is_gated(config) else 1
    width = 6 * model.d_model + 4 * counts.inner_width + d_ff_copies * model.d_ff
    training_scores = _score_copies(config, counts.path) * model.heads * length
    per_training_token = ACTIVATION_COPIES * model.layers_in_all * width + training_scores
    evaluation_scores = _evaluation_score_copies(config, counts.path) * model.heads * length
    per_evaluation_token = EVALUATION_COPIES * width + evaluation_scores
    of_training = rows * length * per_training_token
    of_evaluation = config.evaluate.batch_size * length * per_evaluation_token
    weight_copies = 4  # weights, gradients, two moments
    if config.train.early_stopping is not None:
        weight_copies += 1  # the best weights
    step_logits = 0
    if config.evaluate.decode == "greedy":
        step_logits = config.evaluate.batch_size * _target_words(plan, run)
    numbers = weight_copies * counts.total + max(of_training, of_evaluation)
    numbers += LOGIT_COPIES * step_logits
    return int(_number_bytes(config) * numbers)


def stack_bytes(plan: Plan, run: PlannedRun, members: int, device: str) -> int:
    """Return the estimated memory in bytes of a stack in training, without that of its process.

    The members share the logits of a chunk.

    Args:
        plan: The plan of the run.
        run: Any run of the stack; its memory is that of every member.
        members: The number of members.
        device: ``"cpu"`` or ``"cuda"``.

    Raises:
        KeyError: If the run's variant is none of the plan.
        HeadToHeadError: If the code of a positional encoding that is a plugin fails.
    """
    return members * training_bytes(plan, run) + _chunk_bytes(plan, run, members, device)


def _chunk_bytes(plan: Plan, run: PlannedRun, members: int, device: str) -> int:
    """Return the estimated memory in bytes of the logits that the members of a stack share."""
    config = plan.variant_of(run).config
    longest = plan.data_of(run).record["longest"]
    target_words = _target_words(plan, run)
    chunk = max_chunk_logits(config.model.d_model, target_words, is_cuda=device != "cpu")
    training_tokens = _rows(config, longest) * _length(config, longest)
    evaluation_tokens = config.evaluate.batch_size * int(longest["target"])
    tokens = max(training_tokens, evaluation_tokens)
    return _number_bytes(config) * LOGIT_COPIES * min(chunk, members * tokens * target_words)


def _fitting(plan: Plan, run: PlannedRun, wanted: int, device: str, memory: int) -> int:
    """Return the estimated number of members that fit into memory, at most ``wanted``.

    It is at least 1, even if a single member does not fit. The scheduler halves a stack that runs out of memory. The
    members share the logits of a chunk, which are estimated for ``wanted`` members, so the estimate for fewer members
    is too low. On a GPU, a backend other than ``eager`` needs ``CAPTURED_COPIES`` times the memory.

    Args:
        plan: The plan of the run.
        run: Any run of the stack; its memory is that of every member.
        wanted: The maximum number, at least 1.
        device: ``"cpu"`` or ``"cuda"``.
        memory: Bytes of memory for the process of the stack, on the device that trains it.

    Raises:
        KeyError: If the run's variant is none of the plan.
    """
    chunk = _chunk_bytes(plan, run, wanted, device)
    available = MEMORY_FRACTION * (memory - PROCESS_BYTES - chunk)
    config = plan.variant_of(run).config
    if device == "cuda" and config.train.backend != "eager":
        available /= CAPTURED_COPIES
    return max(1, min(wanted, int(available // training_bytes(plan, run))))


def _score_copies(config: RunConfig, paths: Mapping[Role, str]) -> int:
    """Return how many numbers a training step stores per attention score, summed over roles and layers.

    Args:
        config: A resolved configuration.
        paths: The attention path of each role, ``fused`` or ``explicit``; with dropout of attention, or a bias by
            content, a fused path stores as many as an explicit one.

    Raises:
        HeadToHeadError: If a positional encoding is not registered, or is a plugin and fails.
    """
    model = config.model
    layers = {
        "encoder": model.encoder_layers,
        "decoder": model.decoder_layers,
        "cross": model.decoder_layers,
    }
    copies = 0
    for role, path in paths.items():
        is_fused = path == "fused" and not model.dropout_attention
        stores_weights = not is_fused or "content_bias" in _mechanisms(config, role)
        copies += layers[role] * (SCORE_COPIES if stores_weights else FUSED_SCORE_COPIES)
    return copies


def _evaluation_score_copies(config: RunConfig, paths: Mapping[Role, str]) -> int:
    """Return how many numbers an evaluation stores per attention score of a layer, the most of all roles.

    A fused path adds the bias to the mask of each sentence. Arguments and errors are those of `_score_copies`.
    """
    copies = 0
    for role, path in paths.items():
        if path != "fused":
            copies = max(copies, EXPLICIT_EVALUATION_SCORES)
        elif _mechanisms(config, role) & {"bias", "content_bias"}:
            copies = max(copies, 1)
    return copies


def _mechanisms(config: RunConfig, role: Role) -> frozenset[str]:
    """Return the hooks by which the positional encoding of a role acts.

    Raises:
        HeadToHeadError: If it is not registered, or is a plugin and fails.
    """
    chosen = config.entry("positional", role)
    encoding = find_positional(chosen.name)
    with calling(encoding):
        return encoding.mechanisms_of(chosen.options)


def _activations(plan: Plan, run: PlannedRun) -> int:
    """Return the approximate number of activations of a member in a training step, logits included.

    It decides which runs are large enough for stacks of their own, a rule that was fitted to it; `training_bytes`
    estimates memory.
    """
    config = plan.variant_of(run).config
    return _tokens(config) * (_activations_per_token(config) + _target_words(plan, run))


def _activations_per_token(config: RunConfig) -> int:
    """Return the approximate number of activations per token, without logits."""
    model = config.model
    d_ff_copies = 3 if _is_gated(config) else 1
    return model.layers_in_all * (10 * model.d_model + d_ff_copies * model.d_ff)


def _is_gated(config: RunConfig) -> bool:
    """Return whether a feed-forward network has gates, which are as wide as its inner activations."""
    networks = config.entries("feed_forward").values()
    return any(registered("feed_forward", chosen.name).gated for chosen in networks)


def _tokens(config: RunConfig) -> int:
    """Return the approximate number of tokens of a batch."""
    train = config.train
    if train.batch_size is None:
        return train.batch_tokens
    return train.batch_size * 16


def _rows(config: RunConfig, longest: Mapping[str, int]) -> int:
    """Return the number of sequences of a microbatch."""
    train = config.train
    batch = train.batch_size or max(1, train.batch_tokens // max(1, *longest.values()))
    return math.ceil(batch / train.num_microbatches)


def _length(config: RunConfig, longest: Mapping[str, int]) -> int:
    """Return the number of tokens of the longest sequence, padding included."""
    if isinstance(config.train.pad_to, int):
        return config.train.pad_to
    return max(longest_sequences(config, longest).values())


def _target_words(plan: Plan, run: PlannedRun) -> int:
    """Return the number of words for which a model of a run predicts logits."""
    data = plan.data_of(run)
    source = len(data.source_vocabulary)
    target = len(data.target_vocabulary)
    return vocab_sizes(plan.variant_of(run).config, source, target).target


def _number_bytes(config: RunConfig) -> int:
    return PRECISIONS[config.train.precision].number_bytes

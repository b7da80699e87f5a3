"""The self-test of backends: compares replayed steps with eager steps on this machine.

A small stack is trained twice on the GPU, with eager and with replayed steps. Its members differ in
everything in which members may differ; it has dropout, batches of several shapes, and a member that
diverges. The test runs in a separate process, so that a crash or a hang is a result too. The result
is cached by GPU, driver and torch version.
"""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from headtohead import children, files
from headtohead.config.resolve import resolve
from headtohead.data import PreparedData, prepare_corpus
from headtohead.errors import HeadToHeadError
from headtohead.model.members import shape
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.plugins.registry import current
from headtohead.schema.run_config import DataConfig, RunConfig
from headtohead.training.backends import BatchShape, BatchSpec, Eager, Graphs, Values, compare, first_line
from headtohead.training.cuda import Capture, cuda_capture
from headtohead.training.loop import StackTraining
from headtohead.training.memory import is_out_of_memory

TESTED = "cuda-graphs"
"""The backend that ``auto`` uses if it is verified. ``compile`` is verified in every training."""

FILE = "backends.json"
"""File name of the cache: results by machine."""

SECONDS = 30.0
"""Time limit of the self-test."""

STEPS = 5
"""Steps of each shape: one captured, one verified and three replayed."""

LENGTHS = ((2, 3), (6, 5), (10, 9))
"""Source and target lengths in words, by shape of batches."""

PRECISIONS = {"float64": 1e-6, "float32": 0.05}
"""Largest difference by precision, as a share of the change by training."""

DIVERGING = {"float64": 1e300, "float32": 1e30}
"""Learning rates at which a member diverges in its first steps."""


@dataclass(frozen=True)
class SelfTestResult:
    """Result of the self-test on a machine; ``fault`` is empty if the backend is verified."""

    machine: str
    fault: str
    seconds: float

    @property
    def description(self) -> str:
        """The result as a sentence."""
        if self.fault:
            return f"{TESTED} failed its self-test on {self.machine}: {self.fault}"
        return f"{TESTED} is verified on {self.machine} ({self.seconds:.0f} s)"


def unverified(backend: str, cache: Path, device: torch.device) -> str:
    """Return why a backend is not verified on this machine, or an empty text.

    Runs the self-test if this machine has no cached result.
    """
    if backend != TESTED:
        return f"{backend} has no self-test"
    try:
        result = verify(cache, device)
    except OSError as error:
        return f"{backend} could not be verified: {error.strerror or error}"
    return result.description if result.fault else ""


def verify(cache: Path, device: torch.device, again: bool = False, command: Sequence[str] = ()) -> SelfTestResult:
    """Return the result on this machine, from the cache or from the self-test.

    Concurrent processes wait for the first to run it.

    Args:
        cache: Folder of the cache.
        device: A GPU.
        again: Whether to run the self-test even if a result is cached.
        command: Command that runs the self-test and prints its result; by default this module.
    """
    name = machine(device)
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f".{FILE}.lock"):
        cached = _read(cache / FILE)
        if name in cached and not again:
            return SelfTestResult(**cached[name])
        began = time.monotonic()
        own = (sys.executable, "-m", "headtohead.training.selftest", str(device))
        fault, permanent = _run(command or own)
        result = SelfTestResult(name, fault, round(time.monotonic() - began, 1))
        if permanent:
            files.write_json(cache / FILE, cached | {name: asdict(result)})
        return result


def machine(device: torch.device) -> str:
    """Return the key of a result: GPU, driver and torch version."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return f"{gpu}, driver {_driver()}, torch {torch.__version__}"


def _driver() -> str:
    """Return the version of the NVIDIA driver, or the CUDA version that it supports."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        supported = getattr(torch._C, "_cuda_getDriverVersion", None)
        return f"for CUDA {supported()}" if supported else "none"
    return next(word for word in text.split("Module")[-1].split() if word[0].isdigit())


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        results: dict[str, dict[str, Any]] = files.read_json(path)
    except (FileNotFoundError, HeadToHeadError):
        return {}
    return results


def _run(command: Sequence[str]) -> tuple[str, bool]:
    """Return the fault, or an empty text, and whether it is permanent."""
    try:
        done = children.run_program(command, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"it took longer than {SECONDS:g} s", True
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
        return str(result["fault"]), bool(result["permanent"])
    except (IndexError, KeyError, TypeError, json.JSONDecodeError):
        lines = done.stderr.strip().splitlines() or ["no message"]
        return f"it ended with exit code {done.returncode}: {lines[-1].strip()}", True


def main() -> None:
    """Run the self-test on the device of the first argument, and print its result as JSON."""
    # Ends this process even if its parent no longer exists.
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
    device, fault, permanent = torch.device(sys.argv[1]), "", True
    try:
        fault = self_test(device, cuda_capture(device))
    except Exception as error:
        # A lack of memory is temporary: another process may use the memory.
        fault, permanent = first_line(error), not is_out_of_memory(error)
    print(json.dumps({"fault": fault, "permanent": permanent}))


def self_test(device: torch.device, capture: Capture) -> str:
    """Return how a replayed training differs from an eager one, or an empty text."""
    data = _data()
    for precision, share in PRECISIONS.items():
        fault = _compared(_configs(precision), data, device, capture, share)
        if fault:
            return f"in {precision}, {fault}"
    return ""


def _compared(
    configs: Sequence[RunConfig], data: PreparedData, device: torch.device, capture: Capture, share: float
) -> str:
    eager, replayed = (
        StackTraining(configs[0], range(1, len(configs) + 1), data, device, configs=configs) for _ in range(2)
    )
    specs, fallbacks = _specs(eager), list[str]()
    eager.backend = Eager()
    replayed.backend = Graphs({spec.shape[:3]: 10**6 for spec in specs}, capture, fallbacks.append)
    before: Values = {}
    for spec in specs:
        for training in (eager, replayed):
            training._step(spec)
        before = before or _start(eager)
    if fallbacks:
        return fallbacks[0]
    if not all(replayed.backend.is_steady(spec.shape) for spec in specs):
        return "a captured step was not verified"
    *_, diverging = range(len(configs))
    if bool(torch.isfinite(eager.loss_sums[diverging])):
        return "the member that should diverge did not"
    values = {kind: [owned.tensor.detach() for owned in parts] for kind, parts in eager.state().items()}
    return compare(before, values, replayed.state(), range(len(configs)), share).fault


def _start(training: StackTraining) -> Values:
    """Return the reference state of changes: weights after the first step, zeros for the rest."""
    return {
        kind: [
            owned.tensor.detach().clone() if kind == "weights" else torch.zeros_like(owned.tensor) for owned in parts
        ]
        for kind, parts in training.state().items()
    }


def _specs(training: StackTraining) -> list[BatchSpec]:
    """Return ``STEPS`` batches of each shape, alternating between shapes."""
    by_shape: dict[BatchShape, list[BatchSpec]] = {}
    seeds = [member.seed for member in training.progress.members]
    for epoch in range(2 * STEPS):
        for batch in training.plan.batches(seeds, epoch):
            spec = training._batch_spec(*batch)
            by_shape.setdefault(spec.shape, []).append(spec)
    frequent = sorted(by_shape.values(), key=len)[-len(LENGTHS) :]
    return [spec for turn in zip(*(specs[:STEPS] for specs in frequent), strict=True) for spec in turn]


def _configs(precision: str) -> list[RunConfig]:
    """Return variants of a stack that differ in everything in which members may differ.

    They include every built-in encoding that can be stacked with the default encoding.
    """
    registry = current()
    wanted = shape(_config(precision, {}), registry)
    encodings = [
        {"encoder": entry.name, "decoder": entry.name}
        for entry in registry.all()
        if (entry.family, entry.distribution) == ("positional", "headtohead")
    ]
    stackable = [
        chosen for chosen in encodings if shape(_config(precision, {"positional": chosen}), registry) == wanted
    ]
    members: list[dict[str, Any]] = [
        {
            "positional": chosen,
            "train": {
                "lr": 1e-3 * (1 + number),
                "clip_norm": 0.5 + number,
                "label_smoothing": 0.1 * (number % 2),
                "weight_decay": 0.01 * (number % 3),
            },
            "model": {"dropout": 0.1 * (1 + number % 3), "mask_value": "-1e9" if number % 2 else "-inf"},
        }
        for number, chosen in enumerate(stackable)
    ]
    last = _config(precision, {"train": {"clip_norm": None}})
    # The rate is beyond the limit of experiment files.
    train = last.train.model_copy(update={"lr": DIVERGING[precision]})
    return [*(_config(precision, raw) for raw in members), last.model_copy(update={"train": train})]


def _config(precision: str, raw: dict[str, Any]) -> RunConfig:
    model = {"d_model": 16, "heads": 2, "layers": 1, "d_ff": 32} | raw.get("model", {})
    train = {
        "steps": 10**6,
        "schedule": "constant",
        "warmup_steps": 0,
        "batch_tokens": 64,
        "precision": precision,
        "backend": TESTED,
    } | raw.get("train", {})
    return resolve({**raw, "model": model, "train": train}, current())


def _data() -> PreparedData:
    """Return pairs of invented words, with equal lengths within each shape of batches."""
    pairs = []
    for group, (source, target) in enumerate(LENGTHS):
        for index in range(40):
            source_words = [f"w{(index * 7 + position * (1 + index % 5)) % 23}" for position in range(source)]
            target_words = [f"v{(index * 5 + position * (1 + group)) % 19}" for position in range(target)]
            pairs.append(Pair(" ".join(source_words), " ".join(target_words), f"{group} {index}"))
    languages = ("source", "target")
    corpus = Corpus(pairs, "public domain", "invented", languages)
    config = DataConfig(dataset="invented", split="row", normalise="none", valid=6, test=6)
    return prepare_corpus(corpus, config)


if __name__ == "__main__":
    main()

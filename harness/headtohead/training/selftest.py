"""The self-test of backends: whether replayed steps equal eager steps on this machine.

It trains a small stack twice on the GPU, with eager and with replayed steps, and compares both. The
stack has members that differ in everything that members may differ in, dropout, batches of
several shapes, and a member that diverges. It runs in a process of its own, so that a crash or an
endless wait is a result too, and its verdict is cached by GPU, driver and torch.
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

from headtohead import files
from headtohead.config.resolve import resolve
from headtohead.data import PreparedData, hash_pairs, prepare_corpus
from headtohead.errors import HeadToHeadError
from headtohead.model.members import shape
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.plugins.registry import current
from headtohead.schema.run_config import DataConfig, RunConfig
from headtohead.training.backends import (
    BatchSpec,
    Capture,
    Eager,
    Graphs,
    Shape,
    Values,
    compare,
    cuda_capture,
    first_line,
)
from headtohead.training.loop import StackTraining
from headtohead.training.memory import is_out_of_memory

TESTED = "cuda-graphs"
"""The backend that ``auto`` uses where it is verified; every training verifies ``compile``."""

FILE = "backends.json"
"""File beside the prepared data: verdicts by machine."""

SECONDS = 30.0
"""The longest that the self-test may take."""

STEPS = 5
"""Steps of each shape: one is captured, one verified, and three are replayed."""

LENGTHS = ((2, 3), (6, 5), (10, 9))
"""Words of the sources and targets of each shape of batches."""

PRECISIONS = {"float64": 1e-6, "float32": 0.05}
"""Shares of the change of a training by which the replayed one may differ, by precision."""

DIVERGING = {"float64": 1e300, "float32": 1e30}
"""Learning rates at which a member diverges in its first steps."""


@dataclass(frozen=True)
class Verdict:
    """Whether a backend is verified on a machine, and why it is not."""

    machine: str
    fault: str
    seconds: float

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.fault:
            return f"{TESTED} failed its self-test on {self.machine}: {self.fault}"
        return f"{TESTED} is verified on {self.machine} ({self.seconds:.0f} s)"


def unverified(backend: str, cache: Path, device: torch.device) -> str:
    """Return why a backend is not verified on this machine, or an empty text.

    Runs the self-test where this machine has no verdict yet.
    """
    if backend != TESTED:
        return f"{backend} has no self-test"
    try:
        verdict = verify(cache, device)
    except OSError as error:
        return f"{backend} could not be verified: {error.strerror or error}"
    return verdict.words if verdict.fault else ""


def verify(cache: Path, device: torch.device, again: bool = False, command: Sequence[str] = ()) -> Verdict:
    """Return the verdict on this machine, from the cache or from the self-test.

    Processes that start at once wait for one of them to run it.

    Args:
        cache: Folder of the cache.
        device: A GPU.
        again: Whether to run the self-test even if there is a verdict.
        command: Runs the self-test and prints its result; by default this module.
    """
    name = machine(device)
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f".{FILE}.lock"):
        known = _read(cache / FILE)
        if name in known and not again:
            return Verdict(**known[name])
        began = time.monotonic()
        own = (sys.executable, "-m", "headtohead.training.selftest", str(device))
        fault, lasting = _run(command or own)
        verdict = Verdict(name, fault, round(time.monotonic() - began, 1))
        if lasting:
            files.write_json(cache / FILE, known | {name: asdict(verdict)})
        return verdict


def machine(device: torch.device) -> str:
    """Return what a verdict depends on: the GPU, its driver and torch."""
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
        known: dict[str, dict[str, Any]] = files.read_json(path)
    except (FileNotFoundError, HeadToHeadError):
        return {}
    return known


def _run(command: Sequence[str]) -> tuple[str, bool]:
    """Return what is wrong, or an empty text, and whether that lasts beyond this moment."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"it took longer than {SECONDS:g} s", True
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
        return str(result["fault"]), bool(result["lasting"])
    except (IndexError, KeyError, TypeError, json.JSONDecodeError):
        lines = done.stderr.strip().splitlines() or ["no message"]
        return f"it ended with exit code {done.returncode}: {lines[-1].strip()}", True


def main() -> None:
    """Run the self-test on the device that is named, and print its result as JSON."""
    # Where the process that started it is gone, nothing else ends it.
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
    device, fault, lasting = torch.device(sys.argv[1]), "", True
    try:
        fault = self_test(device, cuda_capture(device))
    except Exception as error:
        # Another process may hold the memory now.
        fault, lasting = first_line(error), not is_out_of_memory(error)
    print(json.dumps({"fault": fault, "lasting": lasting}))


def self_test(device: torch.device, capture: Capture) -> str:
    """Return how replayed trainings differ from eager ones, or an empty text."""
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
    cuts, fallbacks = _cuts(eager), list[str]()
    eager.backend = Eager()
    replayed.backend = Graphs({cut.shape[:3]: 10**6 for cut in cuts}, capture, fallbacks.append)
    before: Values = {}
    for cut in cuts:
        for training in (eager, replayed):
            training._step(cut)
        before = before or _start(eager)
    if fallbacks:
        return fallbacks[0]
    if not all(replayed.backend.is_steady(cut.shape) for cut in cuts):
        return "a captured step was not verified"
    *_, diverging = range(len(configs))
    if bool(torch.isfinite(eager.loss_sums[diverging])):
        return "the member that should diverge did not"
    values = {kind: [one.tensor.detach() for one in parts] for kind, parts in eager.state().items()}
    return compare(before, values, replayed.state(), range(len(configs)), share).fault


def _start(training: StackTraining) -> Values:
    """Return the state that changes are measured from: weights after the first step, else zeros."""
    return {
        kind: [one.tensor.detach().clone() if kind == "weights" else torch.zeros_like(one.tensor) for one in parts]
        for kind, parts in training.state().items()
    }


def _cuts(training: StackTraining) -> list[BatchSpec]:
    """Return batches of every shape, each as often as is needed, in turn."""
    found: dict[Shape, list[BatchSpec]] = {}
    seeds = [member.seed for member in training.progress.members]
    for epoch in range(2 * STEPS):
        for batch in training.plan.batches(seeds, epoch):
            cut = training._cut(*batch)
            found.setdefault(cut.shape, []).append(cut)
    frequent = sorted(found.values(), key=len)[-len(LENGTHS) :]
    return [cut for turn in zip(*(cuts[:STEPS] for cuts in frequent), strict=True) for cut in turn]


def _configs(precision: str) -> list[RunConfig]:
    """Return variants that train in one stack and differ in whatever a stack allows.

    They have every built-in encoding that can be stacked with the default one.
    """
    registry = current()
    wanted = shape(_config(precision, {}), registry)
    encodings = [
        {"encoder": one.name, "decoder": one.name}
        for one in registry.all()
        if (one.family, one.distribution) == ("positional", "headtohead")
    ]
    alike = [chosen for chosen in encodings if shape(_config(precision, {"positional": chosen}), registry) == wanted]
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
        for number, chosen in enumerate(alike)
    ]
    diverging = {"train": {"lr": DIVERGING[precision], "clip_norm": None}}
    return [_config(precision, raw) for raw in (*members, diverging)]


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
    """Return pairs of invented words, equal in length within each shape of batches."""
    pairs = []
    for group, (source, target) in enumerate(LENGTHS):
        for index in range(40):
            chosen = [f"w{(index * 7 + place * (1 + index % 5)) % 23}" for place in range(source)]
            written = [f"v{(index * 5 + place * (1 + group)) % 19}" for place in range(target)]
            pairs.append(Pair(" ".join(chosen), " ".join(written), f"{group} {index}"))
    languages = ("source", "target")
    corpus = Corpus(pairs, hash_pairs(pairs), "public domain", "invented", languages)
    config = DataConfig(dataset="invented", split="row", normalise="none", valid=6, test=6)
    return prepare_corpus(corpus, config)


if __name__ == "__main__":
    main()

"""Launchers: where stacks run. The run directory is the contract between parent and worker."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headtohead.plugins.entry import BaseOptions, Entry

SMALL_GPU = 16 * 2**30
"""Bytes of a GPU that is in another machine."""


@dataclass(frozen=True)
class WorkerPlugins:
    """Plugins that a worker loads besides built-ins and entry points.

    A launcher hands them to its workers by a channel of its own: an argument, a pipe, a queue. They
    are code, so they are never written into a study's folder and never read from one.

    ``files`` are paths and sources of plugin files; ``objects`` is the pickle of the plugins that
    were registered in Python, empty where there are none.
    """

    files: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    objects: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Job:
    """One stack to train: its folder holds ``stack.json``, which names everything but code.

    ``device`` is a torch device type; a launcher with several GPUs picks one. ``threads`` is how
    many CPU threads the stack uses. ``plugins`` is what its worker loads.
    """

    stack: Path
    device: str
    threads: int = 1
    plugins: WorkerPlugins = field(default_factory=WorkerPlugins)


@dataclass(frozen=True)
class Exit:
    """How a worker process ended: its exit code, negative for a signal, as subprocess has it."""

    job: Job
    code: int


class Launcher(Entry):
    """Starts workers for jobs and reports their ends.

    What is said of cores, GPUs and memory here is true of this machine; a launcher for other
    machines overrides ``gpus``, ``share`` and ``memory``.
    """

    def __init__(self, options: BaseOptions | None = None) -> None:
        self.options = options if options is not None else self.Options()

    def warm(self) -> None:
        """Get ready while the study is planned, if that makes the first start quicker.

        Called once the experiment file is known to be sound; perhaps nothing will be launched.
        """

    def gpus(self) -> int:
        """Return how many GPUs there are for stacks; with none they train on CPUs."""
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def share(self, device: str, stacks: int, workers: int | None, threads: int | None) -> tuple[int, int]:
        """Return how many stacks run at once and how many CPU threads each has.

        ``workers`` and ``threads`` are what the user asked for, if anything.
        """
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        gpus = self.gpus() if device == "cuda" else 0
        return self.divide(cores or 1, gpus, stacks, workers, threads)

    @staticmethod
    def divide(cores: int, gpus: int, stacks: int, workers: int | None, threads: int | None) -> tuple[int, int]:
        """Divide cores and GPUs among stacks: how many at once, and CPU threads of each.

        On a CPU, one thread in each of as many processes as there are cores serves small models
        best (docs/internals/performance.md); fewer stacks than cores share the cores.
        On GPUs, one process each.
        """
        workers = workers or gpus or max(1, min(cores, stacks))
        return workers, threads or max(1, cores // max(1, min(workers, max(stacks, 1))))

    def memory(self, device: str, workers: int) -> int:
        """Return the bytes that each of ``workers`` stacks at once may use, of the GPU on one.

        Stacks are made no larger than fits; one that runs out of memory all the same is halved.
        """
        if device == "cuda":
            return gpu_memory() // math.ceil(workers / max(1, self.gpus()))
        return machine_memory() // max(1, workers)

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job, at most ``workers`` at once, yielding each exit as it happens.

        Between exits None is yielded a few times a second, so that the caller can show progress.
        Closing the iterator ends the workers that still run.
        """
        raise NotImplementedError


def gpu_memory() -> int:
    """Return the bytes of this machine's smallest GPU, or of a small one where it has none."""
    import torch

    gpus = range(torch.cuda.device_count())
    found = [torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus]
    return min(found, default=SMALL_GPU)


def machine_memory() -> int:
    """Return the bytes of this machine, or of the container that this process is confined to."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroup 2 and 1
        with suppress(OSError, ValueError):  # no such file, or no limit: max
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return min(limits)

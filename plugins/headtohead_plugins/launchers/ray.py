"""Trains stacks on a Ray cluster. A stack is a task with as many CPU cores as threads, or with a GPU.

All nodes must share the runs folder. Plugin files are part of the task. Ray does not retry tasks: after the loss of a
node, as after the death of a process, the scheduler resumes the stack from its resume point.

Paper: Moritz et al., Ray: A Distributed Framework for Emerging AI Applications, OSDI 2018, arXiv:1712.05889.
"""

from __future__ import annotations

import logging
import os
import socket
import sysconfig
from collections.abc import Sequence
from contextlib import chdir
from typing import Any

from pydantic import Field

from headtohead.plugin import (
    ClusterLauncher,
    HeadToHeadError,
    Job,
    Launcher,
    Options,
    RemoteJob,
    hookimpl,
    without_working_directory,
)

CONNECT_SECONDS = 10.0
"""Timeout for a connection to the address of a cluster."""


class RayOptions(Options):
    """The cluster."""

    address: str | None = Field(
        default=None, description="HOST:PORT of the head; default: RAY_ADDRESS, else this machine's cluster"
    )


class RayLauncher(ClusterLauncher):
    """Trains stacks as tasks of a Ray cluster, at most ``workers`` at a time."""

    Options = RayOptions
    options: RayOptions

    _ray: Any = None

    def warm(self) -> None:
        self._connect()

    def gpus(self) -> int:
        """Return the number of GPUs of the cluster."""
        return int(sum(node.get("GPU", 0) for node in self._nodes()))

    def share(self, device: str, stacks: int, workers: int | None, threads: int | None) -> tuple[int, int]:
        """Divide the cluster's cores or GPUs; a stack has at most the cores of a node.

        Raises:
            HeadToHeadError: If no node has ``threads`` cores, or no node has a core.
        """
        gpus = self.gpus() if device == "cuda" else 0
        cores = [int(node.get("CPU", 0)) for node in self._nodes()]
        most = max(cores)
        if (threads or 1) > most:
            todo = f"use --threads {most} or fewer" if most else "add a node with ray start --address HOST:PORT"
            raise HeadToHeadError(f"no node of the cluster has {threads or 1} CPU cores; {todo}")
        workers, threads = self.divide(sum(cores), gpus, stacks, workers, threads)
        return workers, min(threads, most)

    def memory(self, device: str, workers: int) -> int:
        """Return the memory per stack in bytes: an equal part of the nodes' memory, or of a GPU."""
        total = int(sum(node.get("memory", 0) for node in self._nodes()))
        if device == "cuda" or not total:
            return super().memory(device, workers)
        return total // max(1, workers)

    def submit(self, jobs: Sequence[Job], workers: int) -> list[Any]:
        """Start a task per job."""
        # Ray's own retries would not use the resume point.
        train = self._connect().remote(max_retries=0)(RemoteJob.train)
        tasks = [train.options(**self._resources(job, workers)).remote(RemoteJob.of(job)) for job in jobs]
        return [(task, task.future()) for task in tasks]

    def end(self, job: Job, handle: Any) -> int | str | None:
        """Return the result of a task.

        Raises:
            HeadToHeadError: If a node cannot import headtohead.
        """
        _, future = handle
        if not future.done():
            return None
        try:
            result: int | str = future.result()
            return result
        except self._ray.exceptions.RayTaskError as error:
            reason = str(error).strip().splitlines()[-1]
            if isinstance(error.cause, ImportError) or "failed to import" in str(error):
                raise HeadToHeadError(f"a node cannot import headtohead ({reason}); install it there") from error
            return self.ended(job, reason, lost=False)
        except self._ray.exceptions.RayError as error:
            return self.ended(job, str(error))

    def cancel(self, handle: Any) -> None:
        """Kill the worker of a task."""
        self._ray.cancel(handle[0], force=True)

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._connect().nodes() if node["Alive"]]

    def _resources(self, job: Job, workers: int) -> dict[str, float]:
        """Return the Ray resources of a stack: CPU cores, or a GPU or a fraction of a GPU."""
        if job.device != "cuda":
            return {"num_cpus": min(job.threads, max(int(node.get("CPU", 0)) for node in self._nodes()))}
        return {"num_cpus": 1, "num_gpus": min(1.0, int(1e4 * self.gpus() / workers) / 1e4)}

    def _connect(self) -> Any:
        """Import ray, connect to the cluster and return the module.

        Raises:
            HeadToHeadError: If Ray is not installed or the cluster cannot be reached.
        """
        if self._ray is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            try:
                import ray
            except ModuleNotFoundError as error:
                raise HeadToHeadError("launcher 'ray' requires Ray; run pip install 'headtohead[ray]'") from error
            if not ray.is_initialized():
                _join(ray, self.options.address or os.environ.get("RAY_ADDRESS") or "auto")
            self._ray = ray
        return self._ray


def _join(ray: Any, address: str) -> None:
    """Connect to the cluster at an address.

    Raises:
        HeadToHeadError: If that fails.
    """
    try:
        if address != "auto":  # Ray itself would wait for a minute if the address is unreachable
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        # Ray adds the working directory to the search path of its workers.
        with without_working_directory(), chdir(sysconfig.get_path("purelib")):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise HeadToHeadError(
            f"cannot join a Ray cluster at '{address}': {' '.join(str(error).split())}; "
            "start a cluster with ray start --head, or use --address HOST:PORT on one of its nodes"
        ) from error


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    return {"ray": RayLauncher}

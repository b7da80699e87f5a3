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
from collections.abc import Generator
from contextlib import chdir
from functools import cached_property
from typing import Any

from pydantic import Field

from headtohead.plugin import ClusterLauncher, HeadToHeadError, Job, Launcher, Options, hookimpl


class RayOptions(Options):
    """The cluster."""

    address: str | None = Field(
        default=None,
        description="HOST:PORT of the head; default: RAY_ADDRESS, else this machine's cluster",
    )


class RayLauncher(ClusterLauncher):
    """Trains stacks as tasks of a Ray cluster, at most ``workers`` at a time."""

    Options = RayOptions
    options: RayOptions
    packages = ("ray",)

    def gpus(self) -> int:
        return sum(self._per_node("GPU"))

    def share(
        self, device: str, stacks: int, workers: int | None, threads: int | None
    ) -> tuple[int, int]:
        """Divide the cluster's cores or GPUs; a stack has at most the cores of a node.

        Raises:
            HeadToHeadError: If no node has ``threads`` cores, or no node has a core.
        """
        cores = self._per_node("CPU")
        largest = max(cores)
        needed = threads or 1
        if needed > largest:
            advice = "add a node with ray start --address HOST:PORT"
            if largest:
                advice = f"use --threads {largest} or fewer"
            raise HeadToHeadError(f"no node of the cluster has {needed} CPU cores; {advice}")
        gpus = self.gpus() if device == "cuda" else 0
        num_workers, num_threads = self.divide(sum(cores), gpus, stacks, workers, threads)
        return num_workers, min(num_threads, largest)

    def memory(self, device: str, workers: int) -> int:
        """Return the memory per stack in bytes: an equal part of the nodes' memory, or of a GPU."""
        total = sum(self._per_node("memory"))
        if device == "cuda" or not total:
            return super().memory(device, workers)
        return total // workers

    def run(self, job: Job, workers: int) -> Generator[int | str | None]:
        # Ray's own retries would not use the resume point.
        as_task = self._ray.remote(max_retries=0, **self._resources(job, workers))
        task = as_task(self.train).remote(*self.arguments(job))
        future = task.future()
        try:
            while not future.done():
                yield None
            yield future.result()
        except self._ray.exceptions.RayTaskError as error:
            yield f"of the cluster cannot run headtohead: {str(error).strip().splitlines()[-1]}"
        except self._ray.exceptions.RayError as error:
            yield self.lost(job, str(error))
        finally:
            self._ray.cancel(task, force=True)

    def _per_node(self, resource: str) -> list[int]:
        """Return the amount of a resource of every node."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [int(resources.get(resource, 0)) for resources in nodes]

    def _resources(self, job: Job, workers: int) -> dict[str, float]:
        """Return the Ray resources of a stack: CPU cores, or a GPU or a fraction of a GPU."""
        if job.device != "cuda":
            return {"num_cpus": min(job.threads, max(self._per_node("CPU")))}
        share = int(1e4 * self.gpus() / workers) / 1e4  # four decimals, rounded down
        return {"num_cpus": 1, "num_gpus": min(1.0, share)}

    @cached_property
    def _ray(self) -> Any:
        """The module, connected to the cluster."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        address = self.options.address or os.environ.get("RAY_ADDRESS") or "auto"
        try:
            # Ray itself would wait for a minute if the address is unreachable.
            if address != "auto":
                host, _, port = address.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            # Ray adds the working directory to the search path of its workers.
            with chdir(sysconfig.get_path("purelib")):
                ray.init(
                    address,
                    ignore_reinit_error=True,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
        except (OSError, OverflowError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            reason = " ".join(str(error).split())
            raise HeadToHeadError(
                f"cannot join a Ray cluster at '{address}': {reason}; "
                "start a cluster with ray start --head, or use --launcher-option address=HOST:PORT on one of its nodes"
            ) from error
        return ray


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    return {"ray": RayLauncher}

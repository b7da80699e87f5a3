"""Trains stacks as Slurm jobs, submitted by submitit. The runs folder must be shared.

``h2h run`` waits for its jobs and cancels them if it is interrupted. If ``h2h run`` is killed, its jobs continue. The
same command finds them by the job id in each stack's folder and waits for them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from headtohead.plugin import (
    ClusterLauncher,
    HeadToHeadError,
    Job,
    Options,
    cache_root,
    hookimpl,
    run_program,
)

QUEUE_SECONDS = 10.0
"""Time between queries of Slurm's queue."""


class SlurmOptions(Options):
    """Resources of a job. Other names are options of sbatch, such as ``partition`` or ``account``."""

    model_config = ConfigDict(extra="allow")

    executor: Literal["slurm", "local"] = Field(
        default="slurm", description="local: processes on this machine"
    )
    minutes: int = Field(default=1440, ge=1, le=10**6, description="time limit of a job in minutes")
    cpus: int = Field(
        default=1, ge=1, le=1024, description="CPU cores of a job, with a thread each"
    )
    gpus: int = Field(default=0, ge=0, le=1, description="GPUs of a job; 1 trains on the GPU")
    memory_gb: float | None = Field(
        default=None, gt=0, le=10**6, description="memory of a job in GB"
    )
    setup: list[str] = Field(
        default_factory=list, description="shell commands before the job: [module load cuda]"
    )


class SlurmLauncher(ClusterLauncher):
    """Trains stacks as Slurm jobs; at most ``workers`` are submitted at a time."""

    Options = SlurmOptions
    options: SlurmOptions
    packages = ("submitit",)

    _queue: list[str] | None = None
    _query_time = -QUEUE_SECONDS

    def gpus(self) -> int:
        return self.options.gpus

    def share(
        self, device: str, stacks: int, workers: int | None, threads: int | None
    ) -> tuple[int, int]:
        """Submit all stacks at once, since Slurm queues them; local processes share this machine."""
        if self.options.executor == "local":
            return super().share(device, stacks, workers, threads)
        return workers or stacks, threads or self.options.cpus

    def memory(self, device: str, workers: int) -> int:
        """Return the memory of a job in bytes: its GPU's, or the option ``memory_gb``."""
        if device == "cpu" and self.options.memory_gb:
            return int(self.options.memory_gb * 2**30)
        # Otherwise assume a node like this machine, whose cores share its memory.
        return super().memory(device, 1 if device == "cuda" else os.cpu_count() or 1)

    def run(self, job: Job, workers: int) -> Generator[int | str | None]:
        """Submit a job, or find the job that Slurm already has."""
        import submitit

        is_local = self.options.executor == "local"
        folder = cache_root() / "launchers"
        job_file = job.stack / "slurm-job"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if job_file.exists() and not is_local and self._is_queued(job_file.read_text()):
            handle = submitit.SlurmJob(folder, job_file.read_text())
        else:
            handle = self._submit(submitit, folder, job)
            job_file.write_text(handle.job_id)
        name = f"job {handle.job_id} (log: {handle.paths.stderr})"
        last_seen = time.monotonic()
        try:
            while not handle.paths.result_pickle.exists():
                # The result may appear after the job has left the queue.
                if time.monotonic() - last_seen >= 2 * QUEUE_SECONDS:
                    break
                is_running = not handle.done() if is_local else self._is_queued(handle.job_id)
                if is_running:
                    last_seen = time.monotonic()
                yield None
        except BaseException:
            handle.cancel(check=False)
            raise
        finally:
            job_file.unlink(missing_ok=True)
        if not handle.paths.result_pickle.exists():
            yield self.lost(job, f"{name} ended without a result")
        elif handle.exception() is not None:
            yield f"of {name} cannot run headtohead"
        else:
            result = handle.result()
            for path in folder.glob(f"{handle.job_id}_*"):
                path.unlink(missing_ok=True)
            yield result

    def _submit(self, submitit: Any, folder: Path, job: Job) -> Any:
        try:
            executor = submitit.AutoExecutor(folder, cluster=self.options.executor)
            executor.update_parameters(
                name="h2h",
                timeout_min=self.options.minutes,
                cpus_per_task=job.threads,
                gpus_per_node=self.options.gpus,
                mem_gb=self.options.memory_gb,
                slurm_setup=self.options.setup,
                slurm_additional_parameters=self.options.model_extra,
            )
            with redirect_stderr(StringIO()):  # the error contains the output of sbatch too
                return executor.submit(self.train, *self.arguments(job))
        except (RuntimeError, subprocess.CalledProcessError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise HeadToHeadError(f"cannot submit to Slurm: {reason}") from error

    def _is_queued(self, job_id: str) -> bool:
        """Return whether Slurm's queue, read every ``QUEUE_SECONDS``, has a job; True while squeue fails."""
        if time.monotonic() - self._query_time >= QUEUE_SECONDS:
            self._query_time = time.monotonic()
            self._queue = None
            command = ["squeue", "--me", "--noheader", "--format=%i"]
            with suppress(OSError, subprocess.SubprocessError):
                self._queue = run_program(command, check=True, timeout=60).stdout.split()
        return self._queue is None or job_id in self._queue


@hookimpl
def register_launchers() -> dict[str, type[ClusterLauncher]]:
    return {"slurm": SlurmLauncher}

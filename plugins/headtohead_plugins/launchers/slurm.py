"""Trains stacks as Slurm jobs, submitted as arrays by submitit. The runs folder must be shared.

``h2h run`` waits for its jobs and cancels them if it is interrupted. If ``h2h run`` is killed, its jobs continue. The
same command finds them by the job id in each stack's folder and waits for them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from headtohead.plugin import (
    ClusterLauncher,
    HeadToHeadError,
    Job,
    Launcher,
    Options,
    RemoteJob,
    exchange_folder,
    hookimpl,
    run_program,
    without_working_directory,
)

QUEUE_SECONDS = 10.0
"""Time between queries of Slurm's queue."""


class SlurmOptions(Options):
    """Resources of a job, and options of sbatch."""

    executor: Literal["slurm", "local"] = Field(default="slurm", description="local: processes on this machine")
    partition: str | None = Field(default=None, description="partition of the jobs")
    minutes: int = Field(default=1440, ge=1, le=10**6, description="time limit of a job in minutes")
    cpus: int = Field(default=1, ge=1, le=1024, description="CPU cores of a job, with a thread each")
    gpus: int = Field(default=0, ge=0, le=1, description="GPUs of a job; 1 trains on the GPU")
    memory_gb: float | None = Field(default=None, gt=0, le=10**6, description="memory of a job in GB")
    setup: list[str] = Field(default_factory=list, description="shell commands before the job: [module load cuda]")
    extra: dict[str, str] = Field(
        default_factory=dict, description="further options of sbatch by long name, such as account"
    )


class SlurmLauncher(ClusterLauncher):
    """Trains stacks as Slurm jobs; at most ``workers`` are submitted at a time."""

    Options = SlurmOptions
    options: SlurmOptions

    _queued: set[str] | None = None
    _last_query = -QUEUE_SECONDS

    def gpus(self) -> int:
        """Return 1 if each job has a GPU."""
        return self.options.gpus

    def share(self, device: str, stacks: int, workers: int | None, threads: int | None) -> tuple[int, int]:
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

    def submit(self, jobs: Sequence[Job], workers: int) -> list[Any]:
        """Find jobs that Slurm already has, and submit an array of the others for each number of threads."""
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise HeadToHeadError("launcher 'slurm' requires submitit; run pip install 'headtohead[slurm]'") from error
        folder = exchange_folder(jobs[0])
        handles: dict[Job, Any] = {}
        new: dict[int, list[Job]] = {}
        for job in jobs:
            job_id = job.stack / self.job_file
            if job_id.exists() and job_id.read_text() in (self.queued() or ()):
                handles[job] = submitit.SlurmJob(folder=folder, job_id=job_id.read_text())
            else:
                new.setdefault(job.threads, []).append(job)
        for threads, group in new.items():
            executor = self._executor(submitit, folder, threads, len(group))
            try:
                # The error contains the output of sbatch too.
                with redirect_stderr(StringIO()), without_working_directory(), executor.batch():
                    submitted = [executor.submit(RemoteJob.of(job).train) for job in group]
            except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
                reason = str(error).strip().splitlines()[-1]
                raise HeadToHeadError(f"Slurm rejected the job: {reason}") from error
            for job, handle in zip(group, submitted, strict=True):
                handles[job] = handle
                (job.stack / self.job_file).write_text(handle.job_id)
        for handle in handles.values():
            handle.last_seen = time.monotonic()
        return [handles[job] for job in jobs]

    def end(self, job: Job, handle: Any) -> int | str | None:
        """Return the result of a job, and remove its files in the exchange folder."""
        name, log = f"job {handle.job_id}", handle.paths.stderr
        if not handle.paths.result_pickle.exists():
            return self.ended(job, f"{name} ended without a result; see {log}") if self._gone(handle) else None
        if (error := handle.exception()) is not None:
            return self.ended(job, f"{name} failed: {str(error).strip().partition(chr(10))[0]}; see {log}", lost=False)
        result: int | str = handle.result()
        for path in handle.paths.folder.glob(f"{handle.job_id}_*"):
            path.unlink(missing_ok=True)
        return result

    def _gone(self, handle: Any) -> bool:
        """Return whether the last queries did not find the job; more than one, since a result file may appear late."""
        if self.options.executor == "local":
            return bool(handle.done() and not handle.paths.result_pickle.exists())
        queued = self.queued()
        if queued is None or handle.job_id in queued:
            handle.last_seen = time.monotonic()
        return bool(time.monotonic() - handle.last_seen > 2 * QUEUE_SECONDS)

    def cancel(self, handle: Any) -> None:
        """Cancel a job."""
        handle.cancel(check=False)

    def queued(self) -> set[str] | None:
        """Return the ids of the user's jobs in Slurm's queue, queried every ``QUEUE_SECONDS``; None if unknown."""
        if self.options.executor == "slurm" and time.monotonic() - self._last_query >= QUEUE_SECONDS:
            self._last_query = time.monotonic()
            command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
            try:
                self._queued = set(run_program(command, timeout=60, check=True).stdout.split())
            except (OSError, subprocess.SubprocessError):
                self._queued = None
        return self._queued

    def _executor(self, submitit: Any, folder: Path, threads: int, jobs: int) -> Any:
        options = self.options
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=options.executor)
        except RuntimeError as error:
            raise HeadToHeadError("launcher 'slurm' cannot find srun; start h2h where Slurm is installed") from error
        partition = {"partition": options.partition} if options.partition else {}
        executor.update_parameters(
            name="h2h",
            timeout_min=options.minutes,
            cpus_per_task=threads,
            gpus_per_node=options.gpus,
            **({"mem_gb": options.memory_gb} if options.memory_gb else {}),
            slurm_array_parallelism=jobs,
            slurm_setup=options.setup,
            slurm_additional_parameters=partition | options.extra,
        )
        return executor


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    return {"slurm": SlurmLauncher}

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
    Exit,
    HeadToHeadError,
    Job,
    Launcher,
    Options,
    RemoteJob,
    Submitted,
    exchange_folder,
    hookimpl,
    run_program,
    without_working_directory,
)

QUEUE_SECONDS = 10.0
"""Time between queries of Slurm's queue."""

JOB_ID_FILE = "slurm-job"
"""File in a stack's folder with the id of its job."""


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

    def submit(self, jobs: Sequence[Job], workers: int) -> list[Submitted]:
        """Find jobs that Slurm already has, and submit an array of the others for each number of threads."""
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise HeadToHeadError("launcher 'slurm' requires submitit; run pip install 'headtohead[slurm]'") from error
        folder = exchange_folder(jobs[0])
        submitted: list[Submitted] = []
        new: dict[int, list[Job]] = {}
        for job in jobs:
            job_id = job.stack / JOB_ID_FILE
            if job_id.exists() and job_id.read_text() in (self.queued() or ()):
                handle = submitit.SlurmJob(folder=folder, job_id=job_id.read_text())
                submitted.append(_Submitted(job, handle, self))
            else:
                new.setdefault(job.threads, []).append(job)
        for threads, group in new.items():
            executor = self._executor(submitit, folder, threads, len(group))
            try:
                # The error contains the output of sbatch too.
                with redirect_stderr(StringIO()), without_working_directory(), executor.batch():
                    handles = [executor.submit(RemoteJob.of(job).train) for job in group]
            except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
                reason = str(error).strip().splitlines()[-1]
                raise HeadToHeadError(f"Slurm rejected the job: {reason}") from error
            submitted += [_Submitted(job, handle, self) for job, handle in zip(group, handles, strict=True)]
        return submitted

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


class _Submitted(Submitted):
    """A stack with its submitted job."""

    def __init__(self, job: Job, handle: Any, launcher: SlurmLauncher) -> None:
        super().__init__(job)
        self.handle, self.launcher = handle, launcher
        self.job_id, self.log = str(handle.job_id), handle.paths.stderr
        self.last_seen = time.monotonic()
        (job.stack / JOB_ID_FILE).write_text(self.job_id)

    def end(self) -> Exit | None:
        if not self.handle.paths.result_pickle.exists():
            return self.ended(f"job {self.job_id} ended without a result; see {self.log}") if self._gone() else None
        if (error := self.handle.exception()) is not None:
            reason = str(error).strip().partition("\n")[0]
            return self.ended(f"job {self.job_id} failed: {reason}; see {self.log}", lost=False)
        end = self.returned(self.handle.result())
        for path in self.handle.paths.folder.glob(f"{self.job_id}_*"):
            path.unlink(missing_ok=True)
        return end

    def _gone(self) -> bool:
        """Return whether the last queries did not find the job; more than one, since a result file may appear late."""
        if self.launcher.options.executor == "local":
            return self.handle.done() and not self.handle.paths.result_pickle.exists()
        queued = self.launcher.queued()
        if queued is None or self.job_id in queued:
            self.last_seen = time.monotonic()
        return time.monotonic() - self.last_seen > 2 * QUEUE_SECONDS

    def cancel(self) -> None:
        self.handle.cancel(check=False)

    def close(self) -> None:
        super().close()
        (self.job.stack / JOB_ID_FILE).unlink(missing_ok=True)


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    return {"slurm": SlurmLauncher}

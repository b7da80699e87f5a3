"""Trains stacks as Slurm jobs, submitted as arrays by submitit. The runs folder must be shared.

``h2h run`` waits for its jobs and cancels them if it is interrupted. If ``h2h run`` is killed, its jobs continue. The
same command finds them by the job id in each stack's folder and waits for them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from headtohead.plugin import (
    Exit,
    HeadToHeadError,
    Job,
    Launcher,
    Message,
    Options,
    RemoteJob,
    Transfer,
    hookimpl,
    run_program,
    without_working_directory,
)

POLL_SECONDS = 0.5
QUEUE_SECONDS = 10.0
"""Time between queries of Slurm's queue."""

MAX_ARRAY = 1000
"""Maximum number of jobs per array; Slurm's default limit is 1001."""

JOB_ID_FILE = "slurm-job"
"""File in a stack's folder with the id of its job."""


class SlurmOptions(Options):
    """Resources of a job, and options of sbatch."""

    executor: Literal["slurm", "local"] = Field(
        default="slurm", description="local: processes on this machine, for tests"
    )
    partition: str | None = Field(default=None, description="partition of the jobs")
    account: str | None = Field(default=None, description="account that is charged")
    qos: str | None = Field(default=None, description="quality of service")
    constraint: str | None = Field(default=None, description="required features of a node")
    minutes: int = Field(default=1440, ge=1, le=10**6, description="time limit of a job in minutes")
    cpus: int = Field(default=1, ge=1, le=1024, description="CPU cores of a job, with a thread each")
    gpus: int = Field(default=0, ge=0, le=1, description="GPUs of a job; 1 trains on the GPU")
    memory_gb: float | None = Field(default=None, gt=0, le=10**6, description="memory of a job in GB")
    setup: list[str] = Field(
        default_factory=list, description="shell commands before the job, such as module load cuda"
    )
    extra: dict[str, str] = Field(default_factory=dict, description="further options of sbatch by long name")


class SlurmLauncher(Launcher):
    """Trains stacks as Slurm jobs; at most ``workers`` are submitted at a time."""

    Options = SlurmOptions

    def gpus(self) -> int:
        """Return 1 if each job has a GPU."""
        return self._options.gpus

    def share(self, device: str, stacks: int, workers: int | None, threads: int | None) -> tuple[int, int]:
        """Submit all stacks at once, since Slurm queues them; local processes share this machine."""
        if self._options.executor == "local":
            return super().share(device, stacks, workers, threads)
        return workers or stacks, threads or self._options.cpus

    def memory(self, device: str, workers: int) -> int:
        """Return the memory of a job in bytes: its GPU's, or the option ``memory_gb``."""
        if device == "cpu" and self._options.memory_gb:
            return int(self._options.memory_gb * 2**30)
        # Otherwise assume a node like this machine, whose cores share its memory.
        return super().memory(device, 1 if device == "cuda" else os.cpu_count() or 1)

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job through Slurm."""
        waiting, running = deque(jobs), list[_Submitted]()
        queue = _Queue(self._options.executor)
        last_query = 0.0
        try:
            while waiting or running:
                room = min(workers - len(running), MAX_ARRAY, len(waiting))
                if room > 0:
                    running += self._submit([waiting.popleft() for _ in range(room)], queue)
                if time.monotonic() - last_query >= QUEUE_SECONDS:
                    last_query = time.monotonic()
                    queue.refresh()
                ended = [(submitted, end) for submitted in running if (end := submitted.end(queue)) is not None]
                for submitted, end in ended:
                    running.remove(submitted)
                    submitted.close()
                    yield end
                if not ended:
                    yield None
                    time.sleep(POLL_SECONDS)
        finally:
            for submitted in running:
                submitted.cancel()

    @property
    def _options(self) -> SlurmOptions:
        assert isinstance(self.options, SlurmOptions)
        return self.options

    def _submit(self, jobs: Sequence[Job], queue: _Queue) -> list[_Submitted]:
        """Find jobs that Slurm already has, and submit an array of the others for each number of threads."""
        submitit = _submitit()
        folder = Transfer.exchange_folder(jobs[0])
        submitted: list[_Submitted] = []
        new: dict[int, list[Job]] = {}
        for job in jobs:
            job_id = _read_job_id(job.stack)
            if job_id is not None and queue.has(job_id):
                handle = submitit.SlurmJob(folder=folder, job_id=job_id)
                submitted.append(_Submitted(Transfer(job, job.device, fresh=False), handle))
            else:
                new.setdefault(job.threads, []).append(job)
        for threads, group in new.items():
            executor = self._executor(submitit, folder, threads, len(group))
            transfers = [Transfer(job, job.device) for job in group]
            try:
                # The error contains the output of sbatch too.
                with redirect_stderr(StringIO()), without_working_directory(), executor.batch():
                    handles = [executor.submit(_train, transfer.remote) for transfer in transfers]
            except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
                reason = str(error).strip().splitlines()[-1]
                raise HeadToHeadError(f"Slurm rejected the job: {reason}") from error
            submitted += map(_Submitted, transfers, handles)
        return submitted

    def _executor(self, submitit: Any, folder: Path, threads: int, jobs: int) -> Any:
        options = self._options
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=options.executor)
        except RuntimeError as error:
            raise HeadToHeadError(
                "launcher 'slurm' cannot find srun; start h2h on a machine with Slurm's commands, or "
                "use --launcher-option executor=local"
            ) from error
        selection = {
            name: value
            for name in ("partition", "account", "qos", "constraint")
            if (value := getattr(options, name)) is not None
        }
        executor.update_parameters(
            name="h2h",
            timeout_min=options.minutes,
            cpus_per_task=threads,
            gpus_per_node=options.gpus,
            **({"mem_gb": options.memory_gb} if options.memory_gb else {}),
            slurm_array_parallelism=jobs,
            slurm_setup=options.setup,
            slurm_additional_parameters=options.extra,
            **{f"slurm_{name}": value for name, value in selection.items()},
        )
        return executor


class _Queue:
    """The user's jobs in Slurm's queue. A job that has left the queue has ended."""

    def __init__(self, executor: str) -> None:
        self.slurm = executor == "slurm"
        self.names: set[str] | None = None
        self.queries = 0

    def refresh(self) -> None:
        """Query the queue; after an error, ``names`` is None."""
        if not self.slurm:
            return
        command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        try:
            done = run_program(command, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            self.names = None
            return
        self.names = set(done.stdout.split())
        self.queries += 1

    def has(self, job_id: str) -> bool:
        """Return whether the job is in the queue; False if the queue is unknown."""
        if self.names is None:
            self.refresh()
        return self.names is not None and job_id in self.names


class _Submitted:
    """A stack with its submitted job."""

    def __init__(self, transfer: Transfer, handle: Any) -> None:
        self.transfer, self.handle = transfer, handle
        self.job_id = str(handle.job_id)
        self.missing_since: int | None = None
        (transfer.job.stack / JOB_ID_FILE).write_text(self.job_id)

    def end(self, queue: _Queue) -> Exit | None:
        """Return the exit of the job; None while it runs."""
        if self.handle.paths.result_pickle.exists():
            return self._result()
        if self._gone(queue):
            return self.transfer.lost(f"job {self.job_id} ended without a result; see {self._log}")
        return None

    def _result(self) -> Exit:
        error = self.handle.exception()
        if error is not None:
            trace = [line for line in str(error).splitlines() if line.strip()]
            return self.transfer.failed(f"job {self.job_id} failed: {trace[0]}; see {self._log}")
        message: Message = self.handle.result()
        if message.kind == "exit":
            for path in self.handle.paths.folder.glob(f"{self.job_id}_*"):
                path.unlink(missing_ok=True)
            return self.transfer.ended(message.code)
        if message.kind == "refused":
            raise HeadToHeadError(f"node {message.text}")
        raise HeadToHeadError(f"a node cannot access '{self.transfer.job.stack}'; choose a shared folder with --runs")

    def _gone(self, queue: _Queue) -> bool:
        """Return whether two consecutive queries did not find the job, since a result file may appear late."""
        if not queue.slurm:
            return bool(self.handle.done()) and not self.handle.paths.result_pickle.exists()
        if queue.names is None or self.job_id in queue.names:
            self.missing_since = None
            return False
        if self.missing_since is None:
            self.missing_since = queue.queries
        return queue.queries >= self.missing_since + 2

    @property
    def _log(self) -> Path:
        return Path(self.handle.paths.stderr)

    def cancel(self) -> None:
        """Cancel the job."""
        self.handle.cancel(check=False)
        self.close()

    def close(self) -> None:
        """Close the transfer and remove the job id."""
        self.transfer.close()
        (self.transfer.job.stack / JOB_ID_FILE).unlink(missing_ok=True)


def _train(job: RemoteJob) -> Message:
    """Train a stack; the body of a job."""
    last = [message for message in job.train() if message is not None]
    return last[-1]


def _read_job_id(stack: Path) -> str | None:
    path = stack / JOB_ID_FILE
    return path.read_text().strip() if path.exists() else None


def _submitit() -> Any:
    try:
        import submitit
    except ModuleNotFoundError as error:
        raise HeadToHeadError("launcher 'slurm' requires submitit; run pip install 'headtohead[slurm]'") from error
    return submitit


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    """Register ``slurm``."""
    return {"slurm": SlurmLauncher}

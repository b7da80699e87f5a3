"""Slurm, by submitit: each stack is one job, submitted in arrays; the runs folder is shared.

``h2h run`` waits for its jobs and cancels them when it is interrupted. Jobs of an ``h2h run`` that
was killed go on: the same command finds them by the number that each stack's folder keeps, and
waits for them instead of submitting anew.
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

from headtohead import Exit, HeadToHeadError, Job, Launcher, Message, Options, RemoteJob, Transfer, hookimpl

POLL_SECONDS = 0.5
ASK_SECONDS = 10.0
"""How often Slurm is asked which jobs it still knows."""

ARRAY = 1000
"""Jobs of one array: Slurm's usual limit is 1001."""

NUMBER = "slurm-job"
"""The file of a stack's folder that keeps the number of its job."""


class SlurmOptions(Options):
    """What each job asks for."""

    executor: Literal["slurm", "local"] = Field(
        default="slurm", description="local: submitit's processes on this machine, to try it out"
    )
    partition: str | None = Field(default=None, description="where jobs run")
    account: str | None = Field(default=None, description="whom they are charged to")
    qos: str | None = Field(default=None, description="quality of service")
    constraint: str | None = Field(default=None, description="features a node must have")
    minutes: int = Field(default=1440, ge=1, description="time limit of a job")
    cpus: int = Field(default=1, ge=1, description="cores of a job, one CPU thread each")
    gpus: int = Field(default=0, ge=0, le=1, description="GPUs of a job: 1 trains on the GPU")
    memory_gb: float | None = Field(default=None, gt=0, description="memory of a job, in GB")
    setup: list[str] = Field(default_factory=list, description="shell lines before the job, such as module load cuda")
    extra: dict[str, str] = Field(default_factory=dict, description="any further option of sbatch, by its long name")


class SlurmLauncher(Launcher):
    """Runs stacks as Slurm jobs; ``workers`` limits how many are submitted at a time."""

    Options = SlurmOptions

    def gpus(self) -> int:
        """Return 1 if each job has a GPU."""
        return self._options.gpus

    def share(self, device: str, stacks: int, workers: int | None, threads: int | None) -> tuple[int, int]:
        """Submit all at once, for Slurm to queue; submitit's own processes share this machine."""
        if self._options.executor == "local":
            return super().share(device, stacks, workers, threads)
        return workers or stacks, threads or self._options.cpus

    def memory(self, device: str, workers: int) -> int:
        """Return what each job has for itself: its own GPU, or the memory it asks for."""
        if device == "cpu" and self._options.memory_gb:
            return int(self._options.memory_gb * 2**30)
        # Else a node is taken for a machine like this one, whose cores share its memory.
        return super().memory(device, 1 if device == "cuda" else os.cpu_count() or 1)

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job through Slurm."""
        waiting, running = deque(jobs), list[_Submitted]()
        known = _Queue(self._options.executor)
        asked = 0.0
        try:
            while waiting or running:
                room = min(workers - len(running), ARRAY, len(waiting))
                if room > 0:
                    running += self._submit([waiting.popleft() for _ in range(room)], known)
                if time.monotonic() - asked >= ASK_SECONDS:
                    asked = time.monotonic()
                    known.ask()
                ended = [(one, end) for one in running if (end := one.end(known)) is not None]
                for one, end in ended:
                    running.remove(one)
                    one.close()
                    yield end
                if not ended:
                    yield None
                    time.sleep(POLL_SECONDS)
        finally:
            for one in running:
                one.cancel()

    @property
    def _options(self) -> SlurmOptions:
        assert isinstance(self.options, SlurmOptions)
        return self.options

    def _submit(self, jobs: Sequence[Job], known: _Queue) -> list[_Submitted]:
        """Take up jobs that Slurm has already, and submit the others in one array each."""
        submitit = _submitit()
        folder = Transfer.exchange_folder(jobs[0])
        found: list[_Submitted] = []
        new: dict[int, list[Job]] = {}
        for job in jobs:
            number = _read_number(job.stack)
            if number is not None and known.has(number):
                handle = submitit.SlurmJob(folder=folder, job_id=number)
                found.append(_Submitted(Transfer(job, job.device, fresh=False), handle))
            else:
                new.setdefault(job.threads, []).append(job)
        for threads, group in new.items():
            executor = self._executor(submitit, folder, threads, len(group))
            sent = [Transfer(job, job.device) for job in group]
            try:
                # What sbatch says stands in the error too.
                with redirect_stderr(StringIO()), executor.batch():
                    handles = [executor.submit(_train, one.remote) for one in sent]
            except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
                reason = str(error).strip().splitlines()[-1]
                raise HeadToHeadError(f"Slurm takes no job: {reason}") from error
            found += map(_Submitted, sent, handles)
        return found

    def _executor(self, submitit: Any, folder: Path, threads: int, jobs: int) -> Any:
        asked = self._options
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=asked.executor)
        except RuntimeError as error:
            raise HeadToHeadError(
                "launcher 'slurm' finds no srun here; start h2h where Slurm's commands are, or "
                "type --launcher-option executor=local"
            ) from error
        more = {
            name: value
            for name in ("partition", "account", "qos", "constraint")
            if (value := getattr(asked, name)) is not None
        }
        executor.update_parameters(
            name="h2h",
            timeout_min=asked.minutes,
            cpus_per_task=threads,
            gpus_per_node=asked.gpus,
            **({"mem_gb": asked.memory_gb} if asked.memory_gb else {}),
            slurm_array_parallelism=jobs,
            slurm_setup=asked.setup,
            slurm_additional_parameters=asked.extra,
            **{f"slurm_{name}": value for name, value in more.items()},
        )
        return executor


class _Queue:
    """What Slurm still knows: a job that is in it lives; one that was and is not has ended."""

    def __init__(self, executor: str) -> None:
        self.slurm = executor == "slurm"
        self.names: set[str] | None = None
        self.looks = 0

    def ask(self) -> None:
        """Look once; where Slurm does not answer, nothing is known."""
        if not self.slurm:
            return
        command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            self.names = None
            return
        self.names = set(done.stdout.split())
        self.looks += 1

    def has(self, number: str) -> bool:
        """Whether Slurm has the job; unknown is no."""
        if self.names is None:
            self.ask()
        return self.names is not None and number in self.names


class _Submitted:
    """One stack whose job is submitted."""

    def __init__(self, sending: Transfer, handle: Any) -> None:
        self.sending, self.handle = sending, handle
        self.number = str(handle.job_id)
        self.missing_since: int | None = None
        (sending.job.stack / NUMBER).write_text(self.number)

    def end(self, queue: _Queue) -> Exit | None:
        """Return how the job ended, or None while it has not."""
        if self.handle.paths.result_pickle.exists():
            return self._result()
        if self._gone(queue):
            return self.sending.lost(f"job {self.number} ended without a result; see {self._log}")
        return None

    def _result(self) -> Exit:
        error = self.handle.exception()
        if error is not None:
            trace = [line for line in str(error).splitlines() if line.strip()]
            return self.sending.failed(f"job {self.number} failed: {trace[0]}; see {self._log}")
        message: Message = self.handle.result()
        if message.kind == "exit":
            for path in self.handle.paths.folder.glob(f"{self.number}_*"):
                path.unlink(missing_ok=True)
            return self.sending.ended(message.code)
        if message.kind == "refused":
            raise HeadToHeadError(f"node {message.text}")
        raise HeadToHeadError(f"a node does not see '{self.sending.job.stack}'; name a shared folder with --runs")

    def _gone(self, queue: _Queue) -> bool:
        """Whether two looks in a row have not found the job: a result may take time to be seen."""
        if not queue.slurm:
            return bool(self.handle.done()) and not self.handle.paths.result_pickle.exists()
        if queue.names is None or self.number in queue.names:
            self.missing_since = None
            return False
        if self.missing_since is None:
            self.missing_since = queue.looks
        return queue.looks >= self.missing_since + 2

    @property
    def _log(self) -> Path:
        return Path(self.handle.paths.stderr)

    def cancel(self) -> None:
        """End the job, running or not."""
        self.handle.cancel(check=False)
        self.close()

    def close(self) -> None:
        """Forget the job."""
        self.sending.close()
        (self.sending.job.stack / NUMBER).unlink(missing_ok=True)


def _train(job: RemoteJob) -> Message:
    """Train a stack; the body of a job."""
    last = [message for message in job.train() if message is not None]
    return last[-1]


def _read_number(stack: Path) -> str | None:
    path = stack / NUMBER
    return path.read_text().strip() if path.exists() else None


def _submitit() -> Any:
    try:
        import submitit
    except ModuleNotFoundError as error:
        raise HeadToHeadError("launcher 'slurm' needs submitit; type pip install 'headtohead[slurm]'") from error
    return submitit


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    """Register ``slurm``."""
    return {"slurm": SlurmLauncher}

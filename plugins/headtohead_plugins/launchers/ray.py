"""Trains stacks on a Ray cluster. A stack is a task with as many CPU cores as threads, or with a GPU.

A node with access to the runs folder trains in it. Any other node receives an archive of the stack and the prepared
data; plugin files are part of the task. Such a node sends back metrics every few seconds and resume points every
``save_minutes``. Ray does not retry tasks: after the loss of a node, as after the death of a process, the scheduler
resumes the stack from its resume point.

Paper: Moritz et al., Ray: A Distributed Framework for Emerging AI Applications, OSDI 2018,
arXiv:1712.05889.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import socket
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

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

POLL_SECONDS = 0.2
CONNECT_SECONDS = 10.0
"""Timeout for a connection to the address of a cluster."""


class RayOptions(Options):
    """The cluster, and the time between transfers of resume points."""

    address: str | None = Field(
        default=None,
        description="HOST:PORT of the cluster's head, or local for a new cluster on this machine; "
        "default: RAY_ADDRESS, else the cluster of which this machine is a node",
    )
    loopback: bool = Field(
        default=True,
        description="whether a cluster that address local starts listens only on the loopback "
        "interface; false: on all interfaces of this machine",
    )
    save_minutes: float = Field(
        default=10.0,
        gt=0,
        le=10_000,
        description="minutes between transfers of resume points from nodes without access to the runs "
        "folder; values below train.checkpoint_seconds have no effect",
    )


class RayLauncher(Launcher):
    """Trains stacks as tasks of a Ray cluster, at most ``workers`` at a time."""

    Options = RayOptions

    _ray: Any = None

    def warm(self) -> None:
        """Connect to the cluster."""
        self._connect()

    def gpus(self) -> int:
        """Return the number of GPUs of the cluster."""
        return int(sum(node.get("GPU", 0) for node in self._nodes()))

    def share(self, device: str, stacks: int, workers: int | None, threads: int | None) -> tuple[int, int]:
        """Divide the cluster's cores or GPUs; a stack has at most the cores of a node.

        Raises:
            HeadToHeadError: If no node has ``threads`` cores.
        """
        gpus, most = (self.gpus() if device == "cuda" else 0), self._most_cores()
        if threads and threads > most:
            raise HeadToHeadError(f"no node of the cluster has {threads} cores; use --threads {most} or fewer")
        cores = int(sum(node.get("CPU", 0) for node in self._nodes()))
        workers, threads = self.divide(cores, gpus, stacks, workers, threads)
        return workers, min(threads, most)

    def memory(self, device: str, workers: int) -> int:
        """Return the memory per stack in bytes: an equal part of the nodes' memory, or of a GPU."""
        total = int(sum(node.get("memory", 0) for node in self._nodes()))
        if device == "cuda" or not total:
            return super().memory(device, workers)
        return total // max(1, workers)

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job as a task."""
        ray = self._connect()
        waiting, running = deque(jobs), list[_Task]()
        data: dict[str, Any] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    job = waiting.popleft()
                    assert isinstance(self.options, RayOptions)
                    transfer = Transfer(job, job.device, 60 * self.options.save_minutes)
                    running.append(_Task(ray, transfer, self._resources(job, workers), data))
                streams = [task.stream for task in running]
                ready, _ = ray.wait(streams, num_returns=len(streams), timeout=POLL_SECONDS)
                if not ready:
                    yield None
                for task in [task for task in running if task.stream in ready]:
                    ended = task.receive()
                    if ended is not None:
                        running.remove(task)
                        task.transfer.close()
                        yield ended
        finally:
            for task in running:
                ray.cancel(task.stream, force=True)
                task.transfer.close()

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._connect().nodes() if node["Alive"]]

    def _most_cores(self) -> int:
        most = int(max(node.get("CPU", 0) for node in self._nodes()))
        if not most:
            raise HeadToHeadError("no node of the cluster has CPU cores; add a node with ray start --address HOST:PORT")
        return most

    def _resources(self, job: Job, workers: int) -> dict[str, float]:
        """Return the Ray resources of a stack: CPU cores, or a GPU or a fraction of a GPU."""
        if job.device != "cuda":
            return {"num_cpus": min(job.threads, self._most_cores())}
        return {"num_cpus": 1, "num_gpus": min(1.0, int(1e4 * self.gpus() / workers) / 1e4)}

    def _connect(self) -> Any:
        """Import ray, connect to the cluster and return the module.

        Raises:
            HeadToHeadError: If Ray is not installed or the cluster cannot be reached.
        """
        if self._ray is None:
            assert isinstance(self.options, RayOptions)
            address = self.options.address or os.environ.get("RAY_ADDRESS") or "auto"
            _refuse_unreachable(address)
            _set_environment(address, self.options.loopback)
            try:
                import ray
            except ModuleNotFoundError as error:
                raise HeadToHeadError("launcher 'ray' requires Ray; run pip install 'headtohead[ray]'") from error
            if not ray.is_initialized():
                _join(ray, address, self.options.loopback)
            self._ray = ray
        return self._ray


class _Task:
    """A stack on the cluster: a stream of messages, restarted with a copy if the node cannot access the folder."""

    def __init__(self, ray: Any, transfer: Transfer, resources: dict[str, float], data: dict[str, Any]) -> None:
        self.ray, self.transfer, self.data = ray, transfer, data
        # Ray's own retries would not use the resume point. Backpressure limits a copy to a single pending
        # message, so that archives do not accumulate if the local disk is slow.
        self.task = ray.remote(**resources, max_retries=0, _generator_backpressure_num_objects=1)(_train)
        self.stream = self.task.remote(transfer.remote, None)

    def receive(self) -> Exit | None:
        """Handle the next message; return the exit of the stack if it was the last message."""
        try:
            message: Message = self.ray.get(next(self.stream))
        except StopIteration:
            return self.transfer.lost("the task ended without a result")
        except self.ray.exceptions.RayTaskError as error:
            return self._raised(error)
        except self.ray.exceptions.RayError as error:
            return self.transfer.lost(str(error))
        if message.kind == "refused":
            raise HeadToHeadError(f"node {message.text}")
        if message.kind == "away":
            return self._send_copy()
        ended = self.transfer.receive(message)
        if ended is not None and message.kind != "exit":
            # Another process has taken over a lease, so the copy is useless.
            self.ray.cancel(self.stream, force=True)
        return ended

    def _send_copy(self) -> Exit | None:
        if not self.transfer.leased():
            return self.transfer.busy()
        key = self.transfer.data
        if key not in self.data:
            self.data[key] = self.ray.put(self.transfer.read_data())
        archive_bytes = self.ray.put(self.transfer.pack())
        self.stream = self.task.remote(self.transfer.remote, [archive_bytes, self.data[key]])
        return None

    def _raised(self, error: Any) -> Exit:
        reason = str(error).strip().splitlines()[-1]
        if isinstance(error.cause, ImportError) or "failed to import" in str(error):
            raise HeadToHeadError(
                f"a node of the cluster cannot import headtohead ({reason}); install the same version there"
            ) from error
        return self.transfer.failed(reason)


def _train(job: RemoteJob, references: list[Any] | None) -> Iterator[Message]:
    """Train a stack; the body of a task."""
    import ray

    def fetch() -> tuple[bytes, bytes]:
        archive_bytes, data = ray.get(references)
        return archive_bytes, data

    for message in job.train(fetch if references else None):
        if message is not None:
            yield message


def _set_environment(address: str, loopback: bool) -> None:
    """Set the environment variables that Ray reads when it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == "local" and loopback:
        # Ray binds to the loopback interface if that is the node's address. It replaces
        # _node_ip_address=127.0.0.1 by an address that other machines reach, except with this
        # variable, which has the same effect on Linux as on the systems in its name.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if "RAY_AUTH_MODE" in os.environ or address == "auto":  # then Ray looks for a token
        return
    if address == "local":
        # A new cluster requires a token. Without one, Ray would write a new one to the home folder.
        if not _has_token():
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        os.environ["RAY_AUTH_MODE"] = "token"
    elif _has_token():
        os.environ["RAY_AUTH_MODE"] = "token" if _requires_token(address) else "disabled"


def _has_token() -> bool:
    """Return whether there is a token for Ray in the environment or in the home folder."""
    in_environment = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return in_environment or (Path.home() / ".ray" / "auth_token").is_file()


def _requires_token(address: str) -> bool:
    """Return whether a cluster refuses a client without a token.

    A process that sends tokens rejects calls without a token, so it cannot communicate with a cluster that sends
    none. Ray reads the mode once per process, so the connection is tried in another process.
    """
    code = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    try:
        probe = run_program([sys.executable, "-c", code, address], env=environment, timeout=3 * CONNECT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return "AuthenticationError" in probe.stderr


def _join(ray: Any, address: str, loopback: bool) -> None:
    """Connect to the cluster at an address; convert errors into HeadToHeadError."""
    local = address == "local"
    if local and loopback and not ipaddress.ip_address(ray.util.get_node_ip_address()).is_loopback:
        raise HeadToHeadError(
            "ray was imported before launcher 'ray' could restrict it to the loopback interface; "
            "import ray later, or set the launcher's option loopback=false"
        )
    try:
        # Ray adds the working directory to the search path of its workers.
        with without_working_directory(), chdir(sysconfig.get_path("purelib")):
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **({"include_dashboard": False} if local else {}),
            )
    except ConnectionError as error:
        raise _no_cluster(
            "this machine is not a node of a running Ray cluster"
            if address == "auto"
            else f"no Ray cluster responds at '{address}'"
        ) from error
    except (RuntimeError, ValueError) as error:  # for example, another version of Ray or Python
        reason = " ".join(str(error).split())
        raise HeadToHeadError(f"cannot join the Ray cluster at '{address}': {reason}") from error


def _refuse_unreachable(address: str) -> None:
    """Refuse an unreachable address; Ray itself would wait for a minute."""
    if address.startswith("ray://"):
        raise HeadToHeadError(
            f"address '{address}' is for Ray Client, which is not supported; start h2h on a node of the cluster "
            "with --address HOST:PORT of its head"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        if address not in {"auto", "local"}:
            raise HeadToHeadError(f"address '{address}': expected HOST:PORT, such as head:6379")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _no_cluster(f"no Ray cluster responds at '{address}' ({reason})") from error


def _no_cluster(problem: str) -> HeadToHeadError:
    return HeadToHeadError(f"{problem}; start a cluster with ray start --head, or use --address HOST:PORT")


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    """Register ``ray``."""
    return {"ray": RayLauncher}

"""A Ray cluster: each stack is one task, with as many CPU cores as it has threads, or a GPU.

Nodes that see the runs folder train in it. To others the stack travels in an archive, with its
prepared data; plugin files travel with the task. What it writes comes back in the same way, its
histories every few seconds, its resume point every ``save_minutes``. Ray repeats no task by itself:
a stack whose node is gone goes on from its resume point, as one does whose process died.

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
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from headtohead import Exit, HeadToHeadError, Job, Launcher, Message, Options, RemoteJob, Transfer, hookimpl

POLL_SECONDS = 0.2
ANSWER_SECONDS = 10.0
"""How long a cluster's address may take to answer."""


class RayOptions(Options):
    """Which cluster, and how often resume points travel."""

    address: str | None = Field(
        default=None,
        description="HOST:PORT of the cluster's head, or local for a cluster of this machine "
        "alone; otherwise RAY_ADDRESS, or the cluster that this machine is a node of",
    )
    loopback: bool = Field(
        default=True,
        description="whether a cluster that address local starts listens on the loopback interface "
        "alone; false: on all interfaces of this machine",
    )
    save_minutes: float = Field(
        default=10.0,
        gt=0,
        description="time between copies of a resume point from a node that does not see the runs "
        "folder; shorter than train.checkpoint_seconds changes nothing",
    )


class RayLauncher(Launcher):
    """Runs stacks as tasks of a Ray cluster, at most ``workers`` at a time."""

    Options = RayOptions

    _ray: Any = None

    def warm(self) -> None:
        """Connect to the cluster."""
        self._connect()

    def gpus(self) -> int:
        """Return how many GPUs the cluster's nodes have."""
        return int(sum(node.get("GPU", 0) for node in self._nodes()))

    def share(self, device: str, stacks: int, workers: int | None, threads: int | None) -> tuple[int, int]:
        """Divide the cluster; a stack has at most the cores of one node.

        Raises:
            HeadToHeadError: If no node has as many cores as ``threads`` asks for.
        """
        gpus, most = (self.gpus() if device == "cuda" else 0), self._most_cores()
        if threads and threads > most:
            raise HeadToHeadError(f"no node of the cluster has {threads} cores; type --threads {most} or fewer")
        cores = int(sum(node.get("CPU", 0) for node in self._nodes()))
        workers, threads = self.divide(cores, gpus, stacks, workers, threads)
        return workers, min(threads, most)

    def memory(self, device: str, workers: int) -> int:
        """Return what each of ``workers`` stacks has of the nodes' memory, or of a GPU."""
        offered = int(sum(node.get("memory", 0) for node in self._nodes()))
        if device == "cuda" or not offered:
            return super().memory(device, workers)
        return offered // max(1, workers)

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
                    sending = Transfer(job, job.device, 60 * self.options.save_minutes)
                    running.append(_Task(ray, sending, self._needs(job, workers), data))
                streams = [task.stream for task in running]
                ready, _ = ray.wait(streams, num_returns=len(streams), timeout=POLL_SECONDS)
                if not ready:
                    yield None
                for task in [one for one in running if one.stream in ready]:
                    ended = task.hear()
                    if ended is not None:
                        running.remove(task)
                        task.sending.close()
                        yield ended
        finally:
            for task in running:
                ray.cancel(task.stream, force=True)
                task.sending.close()

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._connect().nodes() if node["Alive"]]

    def _most_cores(self) -> int:
        most = int(max(node.get("CPU", 0) for node in self._nodes()))
        if not most:
            raise HeadToHeadError("no node of the cluster offers cores; add one with ray start --address HOST:PORT")
        return most

    def _needs(self, job: Job, workers: int) -> dict[str, float]:
        """Return what Ray keeps for a stack: its cores, or its GPU or part of one."""
        if job.device != "cuda":
            return {"num_cpus": min(job.threads, self._most_cores())}
        return {"num_cpus": 1, "num_gpus": min(1.0, int(1e4 * self.gpus() / workers) / 1e4)}

    def _connect(self) -> Any:
        """Return ray, connected.

        Raises:
            HeadToHeadError: If Ray is not installed, or no cluster answers.
        """
        if self._ray is None:
            assert isinstance(self.options, RayOptions)
            address = self.options.address or os.environ.get("RAY_ADDRESS") or "auto"
            _refuse_silent(address)
            _set_environment(address, self.options.loopback)
            try:
                import ray
            except ModuleNotFoundError as error:
                raise HeadToHeadError("launcher 'ray' needs Ray; type pip install 'headtohead[ray]'") from error
            if not ray.is_initialized():
                _join(ray, address, self.options.loopback)
            self._ray = ray
        return self._ray


class _Task:
    """One stack on the cluster: a stream of messages, begun anew where the folder is not seen."""

    def __init__(self, ray: Any, sending: Transfer, needs: dict[str, float], data: dict[str, Any]) -> None:
        self.ray, self.sending, self.data = ray, sending, data
        # Ray's own retries would begin without the resume point. A copy says no more than is taken
        # in: what a slow disk cannot keep up with must not pile up.
        self.task = ray.remote(**needs, max_retries=0, _generator_backpressure_num_objects=1)(_train)
        self.stream = self.task.remote(sending.remote, None)

    def hear(self) -> Exit | None:
        """Take in the next message; return the end of the stack if it was the last."""
        try:
            message: Message = self.ray.get(next(self.stream))
        except StopIteration:
            return self.sending.lost("the task ended without a word")
        except self.ray.exceptions.RayTaskError as error:
            return self._raised(error)
        except self.ray.exceptions.RayError as error:
            return self.sending.lost(str(error))
        if message.kind == "refused":
            raise HeadToHeadError(f"node {message.text}")
        if message.kind == "away":
            return self._send_copy()
        ended = self.sending.receive(message)
        if ended is not None and message.kind != "exit":
            # Another process took the leases over: the copy trains for nothing.
            self.ray.cancel(self.stream, force=True)
        return ended

    def _send_copy(self) -> Exit | None:
        if not self.sending.leased():
            return self.sending.busy()
        key = self.sending.data
        if key not in self.data:
            self.data[key] = self.ray.put(self.sending.read_data())
        parcel = self.ray.put(self.sending.pack())
        self.stream = self.task.remote(self.sending.remote, [parcel, self.data[key]])
        return None

    def _raised(self, error: Any) -> Exit:
        reason = str(error).strip().splitlines()[-1]
        if isinstance(error.cause, ImportError) or "failed to import" in str(error):
            raise HeadToHeadError(
                f"a node of the cluster cannot load headtohead ({reason}); install it there as here"
            ) from error
        return self.sending.failed(reason)


def _train(job: RemoteJob, references: list[Any] | None) -> Iterator[Message]:
    """Train a stack; the body of a task."""
    import ray

    def fetch() -> tuple[bytes, bytes]:
        parcel, data = ray.get(references)
        return parcel, data

    for message in job.train(fetch if references else None):
        if message is not None:
            yield message


def _set_environment(address: str, loopback: bool) -> None:
    """Set the variables that Ray reads when it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == "local" and loopback:
        # Ray binds to the loopback interface if that is the node's address. It replaces
        # _node_ip_address=127.0.0.1 by an address that other machines reach, except with this
        # variable, which has the same effect on Linux as on the systems in its name.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if "RAY_AUTH_MODE" in os.environ or address == "auto":  # Ray itself looks for a token then
        return
    if address == "local":
        # A new cluster requires a token. Without one, Ray would write a new one to the home folder.
        if not _has_token():
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        os.environ["RAY_AUTH_MODE"] = "token"
    elif _has_token():
        os.environ["RAY_AUTH_MODE"] = "token" if _requires_token(address) else "disabled"


def _has_token() -> bool:
    """Return whether Ray finds a token: in the environment or in the home folder."""
    named = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return named or (Path.home() / ".ray" / "auth_token").is_file()


def _requires_token(address: str) -> bool:
    """Return whether a cluster refuses a client without a token.

    A process that sends tokens refuses calls without one, so it could not talk to a cluster that
    sends none. Ray reads the mode once per process: another process asks.
    """
    code = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    try:
        asked = subprocess.run(
            [sys.executable, "-c", code, address],
            env=environment,
            text=True,
            check=False,
            capture_output=True,
            timeout=3 * ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return "AuthenticationError" in asked.stderr


def _join(ray: Any, address: str, loopback: bool) -> None:
    """Connect to the cluster at an address, or refuse it in one line."""
    local = address == "local"
    if local and loopback and not ipaddress.ip_address(ray.util.get_node_ip_address()).is_loopback:
        raise HeadToHeadError(
            "ray was imported before launcher 'ray' could restrict it to the loopback interface; "
            "import ray later, or set the launcher's option loopback=false"
        )
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({"include_dashboard": False} if local else {}),
        )
    except ConnectionError as error:
        raise _no_cluster(
            "this machine is no node of a running Ray cluster"
            if address == "auto"
            else f"no Ray cluster answers at '{address}'"
        ) from error
    except (RuntimeError, ValueError) as error:  # another version of Ray or Python, for one
        reason = " ".join(str(error).split())
        raise HeadToHeadError(f"cannot join the Ray cluster at '{address}': {reason}") from error


def _refuse_silent(address: str) -> None:
    """Refuse an address that nothing listens at; Ray itself would wait for it for a minute."""
    if address.startswith("ray://"):
        raise HeadToHeadError(
            f"address '{address}' is Ray Client's; start h2h on a node of the cluster, with "
            "--address HOST:PORT of its head"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        if address not in {"auto", "local"}:
            raise HeadToHeadError(f"address '{address}': expected HOST:PORT, such as head:6379")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _no_cluster(f"no Ray cluster answers at '{address}' ({reason})") from error


def _no_cluster(where: str) -> HeadToHeadError:
    return HeadToHeadError(f"{where}; start one with ray start --head, or name one with --address HOST:PORT")


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    """Register ``ray``."""
    return {"ray": RayLauncher}

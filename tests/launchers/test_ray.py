"""A real cluster of two nodes on this machine, and what happens to a study on it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from .conftest import Study

pytest.importorskip("ray", reason="Ray is not installed: pip install 'headtohead[ray]'")

pytestmark = pytest.mark.timeout(600)
Wait = Callable[..., None]
STORE = str(80 * 2**20)  # bytes of each node's object store; the least that Ray takes is 75 MiB


@dataclass(frozen=True)
class Node:
    """One node: everything that ``ray start --block`` has started is below it."""

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, *arguments: str, hidden: Path | None = None) -> Node:
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", *arguments,
            "--block", "--object-store-memory", STORE,
        ]  # fmt: skip
        if hidden is not None:
            cover = 'mount -t tmpfs none "$0" && cd / && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", cover, str(hidden), *command]
        # Ray's tasks give way to everything else (nice 15): beside other tests they would starve.
        environment = os.environ | {
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said = b""
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if b"Ray runtime started" in line:
                return cls(process)
        raise AssertionError(said.decode())

    def processes(self) -> list[psutil.Process]:
        try:
            top = psutil.Process(self.process.pid)
            return [*top.children(recursive=True), top]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """End it as a power cut would: all at once, without a word."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class Cluster:
    """The head, which trains too, and room for another node."""

    address: str
    head: Node

    def node(self, hidden: Path | None = None) -> Node:
        return Node.start("--address", self.address, "--num-cpus", "1", hidden=hidden)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="h2h-ray-", dir="/tmp")  # paths of sockets must be short
    head = Node.start(
        "--head", "--port", str(port), "--num-cpus", "1", "--include-dashboard", "false",
        "--node-ip-address", "127.0.0.1", "--temp-dir", folder,
    )  # fmt: skip
    try:
        yield Cluster(f"127.0.0.1:{port}", head)
    finally:
        head.kill()
        shutil.rmtree(folder, ignore_errors=True)


def can_hide(folder: Path) -> bool:
    """Whether a process can be started that sees an empty folder in place of this one."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0"', str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_training(study: Study, node: Node) -> bool:
    """Whether a stack that has a resume point is trained below a node."""
    claims = {stack: pid for stack, pid in study.claims().items() if stack in study.begun()}
    return bool(claims) and any(process.pid in claims.values() for process in node.processes())


def test_a_node_is_killed_and_the_study_comes_to_the_same(
    cluster: Cluster, study: Study, here: Study, wait_for: Wait
) -> None:
    node = cluster.node()
    try:
        with study.started(
            "--launcher", "ray", "--address", cluster.address, "--workers", "2"
        ) as parent:
            wait_for(lambda: is_training(study, node), parent=parent)
            node.kill()
            output, _ = parent.communicate(timeout=240)
        assert parent.returncode == 0, output
    finally:
        node.kill()
    assert output.count("KILLED (the process died (SIGKILL))") == 1
    assert [attempt["state"] for attempt in study.attempts()] == ["KILLED", "KILLED"]
    assert study.began_anew() == []
    assert study.content() == here.content()


def test_a_node_without_the_folder_is_killed_and_the_study_comes_to_the_same(
    cluster: Cluster, study: Study, here: Study, wait_for: Wait
) -> None:
    if not can_hide(study.folder):
        pytest.skip("no mount namespaces here: a node that does not see the folder needs one")
    node = cluster.node(hidden=study.folder)
    try:
        with study.started(
            "--launcher", "ray", "--address", cluster.address, "--workers", "2",
            "--launcher-option", "save_minutes=0.005",
        ) as parent:  # fmt: skip
            # Its stack is claimed by the parent, and its resume point has come home.
            wait_for(lambda: any(
                pid == parent.pid for stack, pid in study.claims().items() if stack in study.begun()
            ), parent=parent)  # fmt: skip
            node.kill()
            output, _ = parent.communicate(timeout=240)
        assert parent.returncode == 0, output
    finally:
        node.kill()
    assert output.count("KILLED (the process died (SIGKILL))") == 1
    assert [attempt["state"] for attempt in study.attempts()] == ["KILLED", "KILLED"]
    assert study.began_anew() == []
    assert study.content() == here.content()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_command(
    cluster: Cluster, study: Study, wait_for: Wait, how: signal.Signals
) -> None:
    study.write(train={"steps": 1_000_000})
    with study.started("--launcher", "ray", "--address", cluster.address) as parent:
        wait_for(lambda: bool(study.begun()), parent=parent)
        (worker,) = study.claims().values()
        parent.send_signal(how)
        parent.communicate(timeout=150)
    wait_for(lambda: not psutil.pid_exists(worker))

"""A real Ray cluster of two nodes on this machine, with killed nodes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from launchers.conftest import ClusterStudy
from made import free_port
from made.study import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # Not imported: every worker of the default tier would do so when it collects the tests.
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install ray"),
]
STORE = str(80 * 2**20)  # bytes of each node's object store; Ray requires at least 75 MiB


@dataclass(frozen=True)
class Node:
    """A node: every process that ``ray start --block`` has started."""

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, *arguments: str, hidden: Path | None = None) -> "Node":
        words = "--block --object-store-memory " + STORE
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments, *words.split()]
        if hidden is not None:
            cover = 'mount -t tmpfs none "$0" && cd / && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", cover, str(hidden), *command]
        # Ray's tasks have low priority (nice 15): beside other tests they would starve.
        environment = os.environ | {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "PYTHONUNBUFFERED": "1",
        }
        environment["RAY_raylet_start_wait_time_s"] = "120"  # for a busy machine
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output = b""
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if b"Ray runtime started" in line:
                return cls(process)
        raise AssertionError(output.decode())

    def processes(self) -> list[psutil.Process]:
        try:
            top = psutil.Process(self.process.pid)
            return [*top.children(recursive=True), top]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """Kill all processes at once, as a power cut would."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class Cluster:
    """The head node, which also trains, and an optional second node."""

    address: str
    head: Node

    def node(self, hidden: Path | None = None) -> Node:
        return Node.start("--address", self.address, "--num-cpus", "1", hidden=hidden)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    port = free_port()
    folder = tempfile.mkdtemp(prefix="h2h-ray-", dir="/tmp")  # paths of sockets must be short
    words = f"--head --port {port} --num-cpus 1 --include-dashboard false --temp-dir {folder}"
    words += " --node-ip-address 127.0.0.1"
    head = Node.start(*words.split())
    try:
        yield Cluster(f"127.0.0.1:{port}", head)
    finally:
        head.kill()
        shutil.rmtree(folder, ignore_errors=True)


def can_hide(folder: Path) -> bool:
    """Return whether a process can be started for which this folder is empty."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0"', str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_training(study: ClusterStudy, node: Node) -> bool:
    """Return whether a node trains a stack that has a resume point."""
    holders = {
        stack: pid for stack, pid in study.holders_of_stacks().items() if stack in study.begun()
    }
    return bool(holders) and any(process.pid in holders.values() for process in node.processes())


def test_a_study_has_the_same_results_after_a_node_is_killed(
    cluster: Cluster, study: ClusterStudy, here: ClusterStudy
) -> None:
    node = cluster.node()
    try:
        with study.started(
            "--launcher", "ray", "--launcher-option", f"address={cluster.address}", "--workers", "2"
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
    assert study.results() == here.results()


def test_a_node_without_the_folder_is_an_error_of_one_line(
    cluster: Cluster, study: ClusterStudy
) -> None:
    if not can_hide(study.folder):
        pytest.skip("no mount namespaces here: a node that does not see the folder needs one")
    node = cluster.node(hidden=study.folder)
    try:
        with study.started(
            "--launcher", "ray", "--launcher-option", f"address={cluster.address}", "--workers", "2"
        ) as parent:
            output, _ = parent.communicate(timeout=240)
    finally:
        node.kill()
    assert parent.returncode == 2
    assert output.splitlines()[-1] == (
        f"h2h: node '{socket.gethostname()}' has no access to this machine's folder '{study.runs}'; "
        "choose a folder that all machines share with --runs"
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_command(
    cluster: Cluster, study: ClusterStudy, how: signal.Signals
) -> None:
    study.write(base={"train": {"steps": 1_000_000}}, design=[])
    with study.started(
        "--launcher", "ray", "--launcher-option", f"address={cluster.address}"
    ) as parent:
        wait_for(lambda: bool(study.begun()), parent=parent)
        (worker,) = study.holders_of_stacks().values()
        parent.send_signal(how)
        parent.communicate(timeout=150)
    wait_for(lambda: not psutil.pid_exists(worker))

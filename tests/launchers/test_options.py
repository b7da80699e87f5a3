"""An invalid launcher option is one line, before anything is trained."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

import pytest

from made import case_table

if TYPE_CHECKING:
    from .conftest import Study

Command = Callable[..., CompletedProcess[str]]


def closed_port() -> int:
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        return int(connection.getsockname()[1])


def refused(call: Command, study: Study, *arguments: str) -> str:
    done = call(study.folder, "run", str(study.file), "--no-tracking", *arguments, H2H_CACHE=str(study.cache))
    assert (done.returncode, study.experiment.joinpath("report.md").exists()) == (2, False)
    (line,) = [message for message in done.stderr.splitlines() if not message.startswith(("training", "note"))]
    return line


@case_table(
    ("arguments", "line"),
    [
        (["--address", "head:6379"], "launcher 'local' has no options, got 'address'"),
        (["--launcher", "rai"], "unknown launcher 'rai'; did you mean 'ray'?"),
        (
            ["--launcher", "ray", "--launcher-option", "adress=x"],
            "launcher 'ray': unknown option 'adress'; did you mean 'address'?",
        ),
        (
            ["--launcher", "slurm", "--launcher-option", "minutes=0"],
            "launcher 'slurm': minutes: must be at least 1, got 0",
        ),
        (
            ["--launcher", "slurm", "--launcher-option", "minutes"],
            "--launcher-option minutes: expected NAME=VALUE, such as partition=gpu",
        ),
        (
            ["--launcher", "slurm", "--launcher-option", "executor=lokal"],
            "launcher 'slurm': executor: expected 'slurm' or 'local', got 'lokal'; did you mean 'local'?",
        ),
        (
            ["--launcher", "slurm", "--address", "head"],
            "launcher 'slurm': unknown option 'address'; known: cpus, executor, extra, gpus, memory_gb, minutes, "
            "partition, setup",
        ),
    ],
    default=3,
)
def test_an_unknown_option_is_one_line(h2h_here: Command, study: Study, arguments: list[str], line: str) -> None:
    assert refused(h2h_here, study, *arguments) == f"h2h: {line}"
    assert not study.experiment.exists()


@pytest.mark.parametrize("name", ["ray", "slurm"])
def test_a_missing_extra_is_one_line(
    h2h_here: Command, study: Study, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"ray": "ray", "slurm": "submitit"}[name]
    monkeypatch.setitem(sys.modules, package, None)
    line = refused(h2h_here, study, "--launcher", name)
    assert line.endswith(f"run pip install 'headtohead[{name}]'")


def test_an_unreachable_address_is_one_line(h2h_here: Command, study: Study) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'headtohead[ray]'")
    for address in (f"127.0.0.1:{closed_port()}", "ray://head:10001", "head"):
        line = refused(h2h_here, study, "--launcher", "ray", "--address", address)
        assert line.startswith(f"h2h: cannot join a Ray cluster at '{address}': ")
        assert line.endswith("; start a cluster with ray start --head, or use --address HOST:PORT on one of its nodes")


def test_missing_slurm_commands_are_one_line(
    h2h_here: Command, study: Study, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    line = refused(h2h_here, study, "--launcher", "slurm")
    assert line.startswith("h2h: launcher 'slurm' cannot find srun")


def test_gpus_are_looked_up_on_the_machine_that_runs_the_stacks(h2h_here: Command, study: Study) -> None:
    from headtohead.api import find_device
    from headtohead.execution.launching import make_launcher

    given: dict[str, Any] = {"gpus": 1}
    assert find_device("auto", make_launcher("slurm", given)) == "cuda"
    assert find_device("auto", make_launcher("slurm", {})) == "cpu"
    line = refused(h2h_here, study, "--launcher", "slurm", "--device", "cuda")
    assert line == "h2h: device 'cuda' is not available here; use --device cpu"


@pytest.mark.parametrize(
    ("device", "use"),
    [
        ("gpu", "cuda"),
        ("cuda:1", "cuda, with CUDA_VISIBLE_DEVICES=1 for this GPU alone"),
        ("tpu", "auto, cpu or cuda"),
        ("", "auto, cpu or cuda"),
    ],
)
def test_an_unknown_device_is_an_error_with_the_value_to_type(device: str, use: str) -> None:
    from headtohead.api import find_device
    from headtohead.errors import HeadToHeadError
    from headtohead.execution.launching import make_launcher

    with pytest.raises(HeadToHeadError) as error:
        find_device(device, make_launcher("slurm", {}))
    assert str(error.value) == f"unknown device '{device}'; use --device {use}"

"""Distribution of cores and GPUs of a machine or a cluster, and the environment of a worker."""

import socket
from pathlib import Path

import pytest
import torch

from headtohead.execution.launching import make_launcher
from headtohead.plugin import HeadToHeadError, Job, Launcher, LocalLauncher
from headtohead.plugins.launcher import WorkerPlugins
from headtohead.storage import exits
from headtohead.storage.stack import StackFolder, StackMember, StackRecord
from launchers.conftest import ClusterStudy
from made.study import own_positional

OWN = {"positional": "own"}


@pytest.mark.parametrize(
    ("cores", "gpus", "stacks", "workers", "threads", "share"),
    [
        (8, 0, 20, None, None, (8, 1)),
        (8, 0, 2, None, None, (2, 4)),
        (8, 0, 20, 2, None, (2, 4)),
        (8, 0, 20, None, 3, (8, 3)),
        (16, 4, 20, None, None, (4, 4)),
        (16, 4, 20, 8, None, (8, 2)),
    ],
)
def test_cores_and_gpus_are_divided(
    cores: int,
    gpus: int,
    stacks: int,
    workers: int | None,
    threads: int | None,
    share: tuple[int, int],
) -> None:
    assert Launcher.divide(cores, gpus, stacks, workers, threads) == share


def clustered(*nodes: dict[str, float]) -> Launcher:
    """Return the launcher of a fictitious cluster: only Ray's description of the nodes matters here."""
    launcher = make_launcher("ray", {})
    launcher._per_node = lambda name: [int(node.get(name, 0)) for node in nodes]  # type: ignore[attr-defined]
    return launcher


def test_a_stack_has_at_most_the_cores_of_a_node() -> None:
    ray = clustered({"CPU": 4.0}, {"CPU": 2.0})
    assert ray.share("cpu", 50, None, None) == (6, 1)
    assert ray.share("cpu", 1, None, None) == (1, 4)
    with pytest.raises(
        HeadToHeadError, match="no node of the cluster has 5 CPU cores; use --threads 4"
    ):
        ray.share("cpu", 1, None, 5)
    with pytest.raises(HeadToHeadError, match="no node of the cluster has 1 CPU cores; add a node"):
        clustered({"CPU": 0.0}).share("cpu", 1, None, None)


def test_more_workers_than_gpus_share_them(tmp_path: Path) -> None:
    ray = clustered({"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 1.0})
    job = Job(tmp_path, "cuda", threads=4)
    assert ray.share("cuda", 50, None, None) == (3, 5)
    assert ray._resources(job, 3) == {"num_cpus": 1, "num_gpus": 1.0}  # type: ignore[attr-defined]
    assert ray._resources(job, 6) == {"num_cpus": 1, "num_gpus": 0.5}  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_worker_has_the_environment_of_its_parent(
    study: ClusterStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second command uses the fork server of the first."""
    probe = "(pathlib.Path(__file__).parent / os.environ['PROBE']).touch()"
    study.write(
        plugin=own_positional(probe, "import os, pathlib"),
        base={"train": {"steps": 2}},
        baseline=OWN,
    )
    for name in ("first", "second"):
        monkeypatch.setenv("PROBE", name)
        study.run("--fresh")
        assert (study.folder / name).exists()


GPU_PROBE = """
import os
from pathlib import Path

with Path(__file__).with_suffix(".seen").open("a") as file:
    print(os.environ.get("CUDA_VISIBLE_DEVICES"), file=file)
"""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1", "2", "0"]),
        ("5,3, 7", ["5", "3", "7", "5"]),
        (
            "GPU-8932f937,GPU-46309a2b,MIG-b91ea8b4",
            ["GPU-8932f937", "GPU-46309a2b", "MIG-b91ea8b4", "GPU-8932f937"],
        ),
    ],
)
def test_every_worker_can_access_only_its_own_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    plugin = tmp_path / "probe.py"
    plugin.write_text(GPU_PROBE)
    sent = WorkerPlugins(files=((str(plugin), plugin.read_bytes()),))
    jobs = []
    for number in range(4):
        folder = StackFolder(tmp_path / ".stacks" / str(number))
        # A stack without run directories: its worker ends after it has loaded the plugin file.
        member = StackMember(variant="none", run_hash="0" * 64, seed=1, directory=f"run-{number}")
        folder.write(StackRecord(members=(member,), device="cuda"))
        jobs.append(Job(folder.path, "cuda", plugins=sent))
    ends = [end for end in LocalLauncher().launch(jobs, workers=4) if end is not None]
    assert {end.code for end in ends} == {exits.INPUT}
    assert sorted(plugin.with_suffix(".seen").read_text().split()) == sorted(expected)


def test_a_gpu_missing_on_the_local_machine_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(HeadToHeadError, match=r"no GPU that torch .* can use; .*--device cpu"):
        next(LocalLauncher().launch([Job(tmp_path, "cuda")], workers=1))


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_machine_without_a_gpu_sends_stacks_to_gpus(study: ClusterStudy) -> None:
    """The plan is created without a GPU; the job is the first to require it."""
    pytest.importorskip("submitit", reason="submitit is missing: pip install submitit")
    study.write(base={"train": {"steps": 2}})
    options = ("--launcher-option", "executor=local", "--launcher-option", "gpus=1")
    done = study.run("--launcher", "slurm", *options, code=2)
    assert f"node '{socket.gethostname()}' has no GPU" in done.stderr.splitlines()[-1]

"""Who has how much: cores and GPUs of a machine or a cluster, and a worker's own environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import pytest

from headtohead import HeadToHeadError, Job, Launcher
from headtohead.runs.launching import make_launcher

if TYPE_CHECKING:
    from .conftest import Study

PLUGIN = """
import os
from pathlib import Path

with Path(__file__).with_suffix(".seen").open("a") as file:
    print(os.getpid(), os.environ["H2H_PROBE"], file=file)
"""


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
    cores: int, gpus: int, stacks: int, workers: int | None, threads: int | None,
    share: tuple[int, int],
) -> None:  # fmt: skip
    assert Launcher.divide(cores, gpus, stacks, workers, threads) == share


class Clustered:
    """Nodes of a cluster that is not there: what Ray says of them is all that counts here."""

    def __init__(self, *nodes: dict[str, float]) -> None:
        self.launcher = make_launcher("ray", {})
        self.launcher._nodes = lambda: list(nodes)  # type: ignore[attr-defined]


def test_a_stack_has_at_most_the_cores_of_one_node() -> None:
    ray = Clustered({"CPU": 4.0}, {"CPU": 2.0}).launcher
    assert ray.share("cpu", 50, None, None) == (6, 1)
    assert ray.share("cpu", 1, None, None) == (1, 4)
    with pytest.raises(HeadToHeadError, match="no node of the cluster has 5 cores; type --threads"):
        ray.share("cpu", 1, None, 5)
    with pytest.raises(HeadToHeadError, match="no node of the cluster offers cores"):
        Clustered({"CPU": 0.0}).launcher.share("cpu", 1, None, None)


def test_more_workers_than_gpus_share_them(tmp_path: Path) -> None:
    ray = Clustered({"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 1.0}).launcher
    job = Job(tmp_path, "cuda", threads=4)
    assert ray.share("cuda", 50, None, None) == (3, 5)
    assert ray._needs(job, 3) == {"num_cpus": 1, "num_gpus": 1.0}  # type: ignore[attr-defined]
    assert ray._needs(job, 6) == {"num_cpus": 1, "num_gpus": 0.5}  # type: ignore[attr-defined]


def test_a_worker_has_the_environment_of_its_own_parent(
    study: Study, h2h_here: Callable[..., CompletedProcess[str]]
) -> None:
    study.write(train={"steps": 2})
    plugin = study.folder / "probe.py"
    plugin.write_text(PLUGIN)
    for probe in ("first", "second"):
        done = h2h_here(
            study.folder, "run", str(study.file), "--no-tracking", "--fresh", "--plugin",
            str(plugin), H2H_CACHE=str(study.cache), H2H_PROBE=probe,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    seen = [line.split() for line in plugin.with_suffix(".seen").read_text().splitlines()]
    workers = [probe for pid, probe in seen if int(pid) != os.getpid()]
    assert workers == ["first"] * 4 + ["second"] * 4

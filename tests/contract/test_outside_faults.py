"""`h2h run` refuses plugin files with a planted fault before the first run, and trains a sound one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from contract.zoo import outside
from made import case_table
from made.study import Completed

pytestmark = pytest.mark.timeout(600)

DEFAULT = (
    "leak-length-32",
    "members-mixed-if-many",
    "closure-parameter-on-any-device",
    "initialisation-ignores-the-seed",
    "infinite-at-length-32",
    "replaces-softmax-in-build",
)
"""One fault of each mechanism in the default tier; two more of them are in `test_as_trained`."""

FIRST = [fault for fault in outside.FAULTS if fault.name in DEFAULT]
ORDERED = [*FIRST, *(fault for fault in outside.FAULTS if fault not in FIRST)]
WORDS = {
    "import": "plugin '",
    "build": "attention/own",
    "global": "global generator; sample in build with self.parameter",
    "reads": "mine.py: Own reads 'scale.txt' without declaring it",
    "replaces": "attention/own replaces torch.nn.functional.cross_entropy",
}
"""How the error starts or what it contains where no check is named."""


def run(fault: outside.OutsideFault, folder: Path, h2h_here: Callable[..., Completed]) -> Completed:
    outside.write(fault, folder)
    cache = str(folder / "cache")
    arguments = ["run", "fault.yaml", "--no-tracking", "--no-report", "--threads", "1"]
    return h2h_here(folder, *arguments, H2H_CACHE=cache, H2H_RUNS=str(folder / "runs"))


@case_table("fault", ORDERED, ids=lambda fault: fault.name, default=len(FIRST))
def test_a_fault_is_refused_before_the_first_run(
    fault: outside.OutsideFault, tmp_path: Path, h2h_here: Callable[..., Completed]
) -> None:
    done = run(fault, tmp_path, h2h_here)
    trained = list((tmp_path / "runs").glob("*/*/results.json"))
    if fault.caught_by is None:
        assert fault.why
        assert trained
        return
    assert done.returncode == 2
    assert not trained
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("h2h: ")]
    assert WORDS.get(fault.caught_by, f"violates '{fault.caught_by}'") in line


@pytest.mark.slow
def test_a_sound_plugin_is_checked_once_and_trains(
    tmp_path: Path, h2h_here: Callable[..., Completed]
) -> None:
    done = run(outside.SOUND, tmp_path, h2h_here)
    assert done.returncode == 0
    assert "checked attention/own as it will train: 2 members, 32 sequences" in done.stdout
    assert "checked attention/own" not in run(outside.SOUND, tmp_path, h2h_here).stdout

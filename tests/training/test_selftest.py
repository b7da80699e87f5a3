"""The self-test verifies correct backends, and reports the fault of others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from headtohead import files
from headtohead.model.attention_context import all_assumed
from headtohead.training import selftest
from headtohead.training.selftest import FILE, self_test, unverified, verify

from .capture import Capture

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(selftest, "PRECISIONS", {"float64": 1e-6})
    with all_assumed():
        yield


class Recorder:
    """Captures on a CPU, and counts captures and replays."""

    def __init__(self, change: Callable[[Capture], None] = lambda captured: None) -> None:
        self.change, self.captures, self.replays = change, 0, 0

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        with Capture() as captured:
            work()
        self.change(captured)
        self.captures += 1

        def replay() -> None:
            self.replays += 1
            captured.replay()

        return replay


@pytest.mark.slow
def test_correct_replays_are_verified() -> None:
    recorder = Recorder()
    assert self_test(CPU, recorder) == ""
    assert recorder.captures == 3, "one for each shape of batches"
    assert recorder.replays == 3 * (selftest.STEPS - 1)


def without(name: str) -> Callable[[Capture], None]:
    """Remove the operations of a name from a graph."""

    def change(captured: Capture) -> None:
        captured.operations = [call for call in captured.operations if call[0].overloadpacket.__name__ != name]

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without("_fused_adamw_"), "a replayed step differs from the eager step"),
        pytest.param(without("mul_"), "a replayed step differs from the eager step", marks=pytest.mark.slow),
    ],
)
def test_wrong_replays_are_not_verified(change: Callable[[Capture], None], why: str) -> None:
    fault = self_test(CPU, Recorder(change))
    assert fault.startswith(f"in float64, cuda-graphs falls back to eager: {why}")


@pytest.mark.slow
def test_a_difference_within_the_tolerance_of_a_step_is_detected_after_all_steps() -> None:
    """A difference of 1/20 per step passes; a difference of 1e-6 of the training does not."""

    weights: list[torch.Tensor] = []

    def note(captured: Capture) -> None:
        (adam, *_) = [call for call in captured.operations if call[0].overloadpacket.__name__ == "_fused_adamw_"]
        weights[:] = [item.detach() for item in adam[1][0]]

    recorder = Recorder(note)

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        replay = recorder(work)

        def wrong() -> None:
            replay()
            for weight in weights:
                weight.mul_(1 + 1e-5)

        return wrong

    fault = self_test(CPU, capture)
    assert fault.startswith("in float64, weights of member ")


def print_result(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"print('noise'); print({text!r})")


def test_the_verdict_is_cached_by_machine(tmp_path: Path) -> None:
    right = print_result('{"fault": "", "permanent": true}')
    wrong = print_result('{"fault": "weights differ", "permanent": true}')
    verdict = verify(tmp_path, CPU, command=right)
    assert verdict.fault == ""
    assert verdict.description.startswith(f"cuda-graphs is verified on {selftest.machine(CPU)} (")
    assert torch.__version__ in verdict.machine
    assert verify(tmp_path, CPU, command=wrong) == verdict, "it is not run a second time"
    again = verify(tmp_path, CPU, again=True, command=wrong)
    assert again.fault == "weights differ"
    assert unverified("cuda-graphs", tmp_path, CPU) == (
        f"cuda-graphs failed its self-test on {selftest.machine(CPU)}: weights differ"
    )
    stored = files.read_json(tmp_path / FILE)
    files.write_json(tmp_path / FILE, {"another driver": stored[selftest.machine(CPU)]})
    assert verify(tmp_path, CPU, command=right).fault == ""
    assert len(files.read_json(tmp_path / FILE)) == 2


def test_an_out_of_memory_verdict_is_not_cached(tmp_path: Path) -> None:
    result = print_result('{"fault": "OutOfMemoryError", "permanent": false}')
    assert verify(tmp_path, CPU, command=result).fault == "OutOfMemoryError"
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("import os; os.kill(os.getpid(), 11)", "it ended with exit code -11: no message"),
        (
            "raise SystemExit('CUDA error: misaligned address')",
            "it ended with exit code 1: CUDA error: misaligned address",
        ),
        ("import time; time.sleep(60)", "it took longer than 1 s"),
    ],
)
def test_a_self_test_that_crashes_or_hangs_verifies_nothing(
    code: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "SECONDS", 1.0 if "sleep" in code else 30.0)
    assert verify(tmp_path, CPU, command=(sys.executable, "-c", code)).fault == fault
    assert files.read_json(tmp_path / FILE)[selftest.machine(CPU)]["fault"] == fault


@pytest.mark.slow
def test_the_self_test_process_fails_without_a_gpu(tmp_path: Path) -> None:
    """The command of a GPU's self-test, executed without a GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    verdict = verify(tmp_path, torch.device("cpu"))
    assert verdict.fault
    assert "exit code" not in verdict.fault


def test_an_unwritable_cache_folder_gives_the_verdict_unverified() -> None:
    assert unverified("cuda-graphs", Path("/proc/h2h"), CPU).startswith("cuda-graphs could not be verified: ")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_this_gpu_is_verified(tmp_path: Path) -> None:
    assert verify(tmp_path, torch.device("cuda")).fault == ""

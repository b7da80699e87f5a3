"""The checks at the sizes of a study: what they compare, what they leave out, and that they name it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from contract.zoo import outside
from headtohead.model.transformer import Transformer
from headtohead.plugins.registry import use_files
from headtohead.testing import tiny_config
from headtohead.testing.checks import as_trained, passes
from headtohead.testing.checks.as_trained import PlannedStack, check_as_trained
from headtohead.testing.checks.clock import Clock, seconds_of
from headtohead.testing.tiny import tiny_data
from made.study import Completed, Study


def planned(members: int = 2, member_bytes: int = 1, **model: object) -> PlannedStack:
    config = tiny_config(train={"precision": "float32"}, **model)
    return PlannedStack((config,) * members, tuple(range(members)), tiny_data(), member_bytes)


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"architecture": "decoder-only"},
        pytest.param({"positional": "shape", "dropout": 0.1}, marks=pytest.mark.slow),
        pytest.param(
            {"attention": "gated-delta", "architecture": "decoder-only"}, marks=pytest.mark.slow
        ),
    ],
)
def test_a_sound_stack_passes_every_check(model: dict[str, object]) -> None:
    findings = check_as_trained(planned(3, **model))
    assert findings.violation is None
    assert findings.not_checked == []
    assert {finding.check for finding in findings.entries} == as_trained.STATEMENTS.keys()


@pytest.mark.parametrize(
    ("name", "members", "d_model"),
    [("initialisation-depends-on-the-stack", 6, 8), ("gradient-negated-in-wide-models", 1, 32)],
)
def test_a_fault_in_large_stacks_or_wide_models_is_found(
    name: str, members: int, d_model: int, tmp_path: Path, own_registry: None
) -> None:
    (fault,) = [fault for fault in outside.FAULTS if fault.name == name]
    outside.write(fault, tmp_path)
    use_files([tmp_path / "mine.py"])
    violation = check_as_trained(planned(members, attention="own", d_model=d_model)).violation
    assert violation is not None
    assert violation.check == fault.caught_by
    smaller = check_as_trained(planned(1, attention="own", d_model=8))
    assert smaller.violation is None


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_every_position_is_the_first_changed_one_of_some_sequence(architecture: str) -> None:
    training = planned(architecture=architecture).training("float64")
    spec = as_trained.largest_batch(training)
    batch = training.splits["train"].batch(spec.rows, *spec.shape[1:3])
    forward = passes.Forward(training.model, batch, training=True)
    found = passes.isolation(forward, torch.ones(2, dtype=torch.bool), 1e-9, Clock(60))
    assert found.verdict.state == "holds"
    assert found.covered == found.positions == int(batch.target_lengths.max()) - 1


def test_a_leak_of_one_token_in_one_position_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    training = planned(architecture="decoder-only").training("float64")
    hidden = Transformer.hidden

    def leaky(self: Transformer, batch: object, *others: object) -> torch.Tensor:
        output = hidden(self, batch, *others)
        tokens = passes.Tokens.of(self, batch)
        later = tokens.ids.gather(2, tokens.starts + 3).unsqueeze(-1)
        place = torch.zeros_like(output)
        place[:, :, 2] = 1e-6
        return output + place * later

    monkeypatch.setattr(Transformer, "hidden", leaky)
    spec = as_trained.largest_batch(training)
    batch = training.splits["train"].batch(spec.rows, *spec.shape[1:3])
    forward = passes.Forward(training.model, batch, training=False)
    found = passes.isolation(forward, torch.ones(2, dtype=torch.bool), 1e-9, Clock(60))
    assert found.verdict.state == "violated"
    assert "position 2" in str(found.verdict.counterexample)


def test_what_does_not_fit_into_the_limits_is_named() -> None:
    for share, missing in (
        (1, "all checks in float64"),
        (4, "more than 2 of 4 members in float64"),
    ):
        stack = planned(4, member_bytes=as_trained.FLOAT64_BYTES // share)
        assert missing in check_as_trained(stack).not_checked
    hurried = check_as_trained(planned(4), seconds=0.0)
    assert hurried.violation is None
    assert any("sequences" in text for text in hurried.not_checked)
    assert "training steps of the stack against its members alone" in hurried.not_checked


@pytest.mark.slow
def test_check_takes_an_experiment_file(tmp_path: Path, h2h_here: Callable[..., Completed]) -> None:
    study = Study(tmp_path, tmp_path / "cache", h2h_here)
    study.write()
    done = study.h2h("check", str(study.file))
    assert "baseline, as trained: 1 member, 16 sequences" in done.stdout
    assert "checks hold" in done.stdout
    line = study.h2h("check", str(study.file), "attention/split-heads", code=2).stderr
    assert "is an experiment file; check it alone" in line


def test_the_limit_of_the_checks_does_not_run_while_other_processes_have_the_processor() -> None:
    clock = Clock(10.0)
    time.sleep(0.3)
    assert clock.left > 9.9
    assert seconds_of(lambda: time.sleep(0.3)) < 0.1
    used = seconds_of(lambda: sum(range(10_000_000)))
    assert used > 0.01
    assert clock.left < 10.0 - used

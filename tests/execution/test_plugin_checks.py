"""Plugin code that is not built in is checked by the quick invariants before a study trains."""

from __future__ import annotations

import pytest

from made import case_table
from made.study import Study

PLUGIN = """
import torch
from headtohead.plugin import Attention, hookimpl

class Own(Attention):
    {build}

    def post_heads(self, heads):
        return {result}

@hookimpl
def register_attentions():
    return {{"own": Own}}
"""
BUILT = "def build(self): self.g = "
SOUND = PLUGIN.format(
    build=f"{BUILT}self.parameter(2, std=0.1, mean=1.0)", result="heads * self.g[:, None, :, None, None]"
)
IDLE = """
from headtohead.plugin import Attention, hookimpl

class Own(Attention):
    pass

@hookimpl
def register_attentions():
    return {"own": Own}
"""


def write(study: Study, source: str) -> None:
    study.write(plugin=source, base={"model": {"heads": 2}, "train": {"steps": 2}}, baseline={"attention": "own"})


HIDDEN = PLUGIN.format(build=f"{BUILT}(lambda t: lambda: t)(torch.randn(2))", result="heads * self.g().to(heads)[0]")
FAULTS = {
    "mixed members": (PLUGIN.format(build="table = None", result="heads - heads.mean(0)"), "violates 'members'"),
    "overrides nothing": (IDLE, "overrides no hook"),
    "not finite": (PLUGIN.format(build="table = None", result="heads.log()"), "violates 'finite'"),
    "a tensor that no scan finds": (HIDDEN, "violates 'members'"),
}


@case_table("name", FAULTS, default=2)
def test_the_quick_check_refuses_a_study_before_its_first_run(study: Study, name: str) -> None:
    source, fault = FAULTS[name]
    write(study, source)
    (line,) = study.run(code=2).stderr.splitlines()
    assert line.startswith(f"h2h: attention/own {fault}")
    assert not list(study.experiment.glob("*/run.json"))


@pytest.mark.slow
def test_a_plugin_is_checked_again_only_when_its_source_changes(study: Study) -> None:
    def checked() -> bool:
        return "checking attention/own before the first run" in study.run("--fresh", "--no-report").stdout

    write(study, SOUND + f"# {study.folder}")  # other tests share the cache
    assert checked()
    assert not checked()
    write(study, SOUND.replace("std=0.1", "std=0.2") + f"# {study.folder}")
    assert checked()

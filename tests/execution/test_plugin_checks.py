"""Plugin code that is not built in is checked before a study trains: at build, and by the quick invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Study

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
PLAIN = SOUND.replace("self.parameter(2, std=0.1, mean=1.0)", "torch.nn.Parameter(torch.randn(2, 2))")
NAN = SOUND.replace("mean=1.0", "mean=float('nan')")
REFUSED = (
    "own.py: Own.g is a plain torch.nn.Parameter without a member axis; create it in build with self.parameter(2, 2)"
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
    (study.folder / "own.py").write_text(source)
    study.write(plugins=["own.py"], base={"model": {"heads": 2}, "train": {"steps": 2}}, baseline={"attention": "own"})


def refused(study: Study, *words: str) -> str:
    done = study.here(study.folder, *words, H2H_CACHE=str(study.cache))
    assert done.returncode == 2, done.stdout
    assert not list(study.experiment.glob("*/run.json"))
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("words", [("plan",), ("run", "--no-tracking"), ("run", "--try")], ids=" ".join)
@pytest.mark.parametrize(
    ("source", "message"), [(PLAIN, REFUSED), (NAN, "own.py: Own.g has NaN or infinite numbers at initialisation")]
)
def test_a_faulty_initial_tensor_is_refused_by_the_plan(
    study: Study, words: tuple[str, ...], source: str, message: str
) -> None:
    """The study has as many seeds as heads."""
    write(study, source)
    line = refused(study, words[0], str(study.file), *words[1:])
    if "--try" in words:
        assert line == f"h2h: {message}"
    else:
        assert line == (
            f"h2h: a model with attention/own fails: {message}; correct the plugin, and test it with 'h2h check "
            "attention/own'"
        )


MIXED = "attention/own violates 'members': expected at most 1e-09: difference between logits in a stack and alone ("
TEST_IT = "correct the plugin, and test it with 'h2h check attention/own'"


@pytest.mark.parametrize(
    ("source", "start", "end"),
    [
        pytest.param(
            PLUGIN.format(build="table = None", result="heads - heads.mean(0)"), MIXED, TEST_IT, id="members are mixed"
        ),
        pytest.param(
            PLUGIN.format(
                build=f"{BUILT}(lambda t: lambda: t)(torch.randn(2))", result="heads * self.g().to(heads)[0]"
            ),
            MIXED,
            TEST_IT,
            id="a tensor that no scan finds",
        ),
        pytest.param(
            PLUGIN.format(build="table = None", result="heads.log()"),
            "attention/own violates 'finite': expected at most 0e+00: encoder: non-finite outputs",
            TEST_IT,
            id="not finite",
        ),
        pytest.param(
            IDLE,
            "attention/own overrides no hook, so it computes the same as its base class",
            "override a hook, or use the built-in entry",
            id="overrides nothing",
        ),
    ],
)
def test_the_quick_check_refuses_a_study_before_its_first_run(study: Study, source: str, start: str, end: str) -> None:
    write(study, source)
    line = refused(study, "run", str(study.file), "--no-tracking")
    assert line.startswith(f"h2h: {start}")
    assert line.endswith(f"; {end}")


@pytest.mark.slow
def test_a_plugin_is_checked_again_only_when_its_source_changes(study: Study) -> None:
    def checked() -> bool:
        return "checking attention/own before the first run" in study.run("--fresh", "--no-report").stdout

    write(study, SOUND + f"# {study.folder}")  # other tests share the cache
    assert checked()
    assert not checked()
    write(study, SOUND.replace("std=0.1", "std=0.2") + f"# {study.folder}")
    assert checked()

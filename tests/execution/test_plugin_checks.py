"""Plugin code that is not built in is checked before a study trains: at build, and by every invariant."""

import pytest

from made import case_table, plugin_file
from made.study import Study


def own(build: str, result: str) -> str:
    return plugin_file(
        f"{build}\n\ndef post_heads(self, heads, x, values):\n    return {result}\n", "attention"
    )


BUILT = "def build(self): self.g = "
SOUND = own(
    f"{BUILT}self.parameter(2, std=0.1, mean=1.0)", "heads * self.g[:, None, :, None, None]"
)
PLAIN = SOUND.replace(
    "self.parameter(2, std=0.1, mean=1.0)", "torch.nn.Parameter(torch.randn(2, 2))"
)


def write(study: Study, source: str, **model: str) -> None:
    base = {"model": {"heads": 2, **model}, "train": {"steps": 2}}
    study.write(plugin=source, base=base, baseline={"attention": "own"})


@pytest.mark.parametrize(
    "source", [PLAIN, SOUND.replace("mean=1.0", "mean=float('nan')")], ids=["plain", "nan"]
)
def test_a_faulty_initial_tensor_is_refused_by_the_plan(study: Study, source: str) -> None:
    """The study has as many seeds as heads."""
    write(study, source)
    for words in (("plan",), ("run", "--no-tracking")) if source == PLAIN else (("plan",),):
        (line,) = study.h2h(words[0], str(study.file), *words[1:], code=2).stderr.splitlines()
        assert "mine.py: Own.g " in line
    assert not list(study.experiment.glob("*/run.json"))


FAULTS = {
    "overrides nothing": (plugin_file("", "attention"), "overrides no hook"),
    "state of training": (
        own(
            f"{BUILT}self.buffer(1, std=0.0, mean=1.0)",
            "(self.training and self.g.mul_(0.9) is None) or heads * self.g[:, :, None, None, None]",
        ),
        "violates 'isolation' at small sizes: a pass changes 'encoder.0.attention.style.g' (training, ",
    ),
    "a list that grows with gradients": (
        own(f"{BUILT}[]", "(torch.is_grad_enabled() and self.g.append(0)) or heads"),
        "violates 'isolation' at small sizes: a pass changes 'encoder.0.attention.style.g' (training, ",
    ),
}
"""Further faults are in ``tests/contract/zoo/outside.py``."""


@case_table("name", FAULTS, default=1)
def test_a_faulty_plugin_is_refused_before_the_first_run(study: Study, name: str) -> None:
    source, fault = FAULTS[name]
    write(study, source)
    (line,) = study.run(code=2).stderr.splitlines()
    assert line.startswith(f"h2h: attention/own {fault}")
    assert not list(study.experiment.glob("*/run.json"))


MASK = """
role_defaults = {"encoder": "padding", "cross": "padding"}
properties = frozenset({"hides-future", "hides-padding"})
calls = 0

def mask(self, role, query, key, lengths):
    self.calls += COUNTED
    return ((key <= query[:, None]) | (query[:, None] > LAST)) & (key < lengths[:, None, None])
"""


@case_table(
    ("last", "counted", "fault"),
    [
        (
            "60",
            "0",
            "'mask-properties' at small sizes: decoder: in a sentence of 81 tokens, query 61 attends to key",
        ),
        ("999", "1", "'isolation' at small sizes: a pass changes 'masking"),
    ],
    default=2,
)
def test_a_mask_is_checked_at_the_lengths_of_the_study(
    study: Study, last: str, counted: str, fault: str
) -> None:
    data = {"dataset": "copy", "longest": 40, "size": 200}
    base = {
        "data": data,
        "model": {"heads": 2, "architecture": "decoder-only"},
        "train": {"steps": 2},
    }
    own = plugin_file(MASK.replace("LAST", last).replace("COUNTED", counted), "masking")
    study.write(plugin=own, base=base, baseline={"masking": "own"})
    (line,) = study.run(code=2).stderr.splitlines()
    assert line.startswith(f"h2h: masking/own violates {fault}")


@pytest.mark.slow
def test_a_plugin_is_checked_again_only_when_its_source_or_the_model_changes(study: Study) -> None:
    def checked() -> bool:
        return (
            "checking attention/own before the first run"
            in study.run("--fresh", "--no-report").stdout
        )

    write(study, SOUND + f"# {study.folder}")  # other tests share the cache
    assert checked()
    assert not checked()
    write(study, SOUND + f"# {study.folder}", norm="post")
    assert checked()
    write(study, SOUND.replace("std=0.1", "std=0.2") + f"# {study.folder}")
    assert checked()


def test_a_file_that_a_hook_reads_when_it_is_called_must_be_declared(study: Study) -> None:
    (study.folder / "scale.txt").write_text("2")
    source = own("reads = ()", "heads * float(Path(__file__).with_name('scale.txt').read_text())")
    write(study, source.replace("import torch", "from pathlib import Path"))
    line = study.run(code=2).stderr.splitlines()[-1]
    assert "mine.py: Own reads 'scale.txt' without declaring it" in line
    assert not list(study.experiment.glob("*/results.json"))

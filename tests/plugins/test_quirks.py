"""Quirks of a plugin file: parts of the model are replaced, batches are changed, and options are fields."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from headtohead import HeadToHeadError
from headtohead.config.builder import resolve
from headtohead.config.identity import run_hash
from headtohead.config.labels import label_at
from headtohead.model.counting import count
from headtohead.model.quirks import changed_batch
from headtohead.plugin import Quirk
from headtohead.plugins.registry import current, find_entry
from headtohead.testing import tiny_config
from headtohead.testing.tiny import tiny_data
from headtohead.training.loop import StackTraining, split_tensors
from made.study import Completed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "own-plugin.md"
CPU = torch.device("cpu")
NAME = "ablation"


@pytest.fixture
def ablation(own_registry: None) -> None:
    """Load the quirk of docs/how-to/own-plugin.md from a plugin file."""
    source = PAGE.read_text("utf-8").split("## A quirk")[1].split("```python\n")[1].split("```")[0]
    current().add_file(Path("ablation.py"), source.encode())


def config_of(**options: Any) -> Any:
    return tiny_config(quirks={NAME: options}, train={"steps": 3})


@pytest.mark.usefixtures("ablation")
def test_a_replaced_part_is_trained_and_counted() -> None:
    plain, config = config_of(), config_of(no_network=1)
    training = StackTraining(config, [1, 2], tiny_data(), CPU)
    names = {name for name, _ in training.model.named_parameters() if "decoder.1.feed_f" in name}
    training.run()
    assert names == {
        "decoder.1.feed_forward_branch.norm.weight",
        "decoder.1.feed_forward_branch.norm.bias",
    }
    before, after = (count(each, 11, 11, 4.0, 5.0) for each in (plain, config))
    width, inner = config.model.d_model, config.model.d_ff
    assert before.total - after.total == 2 * width * inner + width + inner
    assert before.flops_per_token - after.flops_per_token == pytest.approx(4 * width * inner)


@pytest.mark.usefixtures("ablation")
def test_a_changed_batch_is_read_in_training_and_evaluation() -> None:
    splits = split_tensors(config_of(length_only=True), tiny_data(), CPU)
    for part, split in splits.items():
        rows = torch.tensor([[0, 1]])
        assert split.batch(rows, *split.times(rows)).source.unique().tolist() == [4], part
    plain = split_tensors(config_of(), tiny_data(), CPU)
    assert torch.equal(plain["train"].target, splits["train"].target)
    assert len(plain["train"].source.unique()) > 2


@pytest.mark.usefixtures("ablation")
def test_options_are_part_of_hash_and_labels_unless_they_change_nothing() -> None:
    plain, same, other = (
        resolve({"train": {"epochs": 1}, "quirks": {NAME: options}})
        for options in ({}, {"no_network": 0}, {"no_network": 2})
    )
    assert run_hash(plain, 1, "f" * 64) == run_hash(same, 1, "f" * 64)
    assert run_hash(plain, 1, "f" * 64) != run_hash(other, 1, "f" * 64)
    path = ("quirks", NAME, "no_network")
    assert [label_at(config, path) for config in (plain, other)] == [0, 2]


@pytest.mark.usefixtures("ablation")
@pytest.mark.parametrize(
    ("quirks", "message"),
    [
        ({NAME: {"no_netwrk": 1}}, "unknown field 'no_netwrk'; did you mean 'no_network'?"),
        ({NAME: {"no_network": -1}}, "no_network"),
        ({"ablatoin": {"no_network": 1}}, "unknown quirk 'ablatoin'; did you mean 'ablation'?"),
        ({NAME: 3}, "expected a mapping"),
    ],
)
def test_a_wrong_option_or_name_is_one_line(quirks: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadToHeadError) as error:
        resolve({"train": {"epochs": 1}, "quirks": quirks})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_quirk_that_drops_pairs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropping(Quirk):
        def change_batch(self, batch: Any) -> Any:
            return replace(batch, decoder_input_ids=batch.decoder_input_ids[:, 1:])

    entry = replace(find_entry("quirk", "notebooks"), name="dropping", entry=Dropping)
    monkeypatch.setitem(current().entries["quirk"], "dropping", entry)
    config = tiny_config().model_copy(update={"quirks": {"dropping": Dropping.Options()}})
    split = split_tensors(tiny_config(), tiny_data(), CPU)["train"]
    rows = torch.tensor([[0, 1]])
    with pytest.raises(HeadToHeadError, match="must return a Batch of as many pairs"):
        changed_batch(config, split.batch(rows, *split.times(rows)))


LEAK = '''"""A quirk that shows the decoder its later tokens."""
import torch
from headtohead.plugin import Options, Quirk, hookimpl

class Mean(torch.nn.Module):
    """A network, plus the mean over all positions."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, *arguments):
        return self.network(x, *arguments) + x.mean(-2, keepdim=True)

class Leak(Quirk):
    """Adds the mean over all positions."""

    class Options(Options):
        """Options."""
        mean: bool = False

    def change_model(self, model, build):
        if self.options.mean:
            model.decoder[0].feed_forward = Mean(model.decoder[0].feed_forward)

@hookimpl
def register_quirks():
    return {"leak": Leak}
'''

EXPERIMENT = """
question: Does a leak help?
base:
  data: {dataset: toy-grammar, limit: 300}
  model: {d_model: 16, heads: 2, layers: 1, d_ff: 16}
  train: {steps: 4, batch_tokens: 256}
baseline: {quirks.leak.mean: false}
design: [{one_at_a_time: {quirks.leak.mean: [false, true]}}]
seeds: 2
plugins: [leak.py]
"""


@pytest.mark.slow
def test_a_quirk_that_leaks_is_refused_before_the_first_run(
    tmp_path: Path, h2h_here: Callable[..., Completed]
) -> None:
    (tmp_path / "leak.py").write_text(LEAK)
    (tmp_path / "leak.yaml").write_text(EXPERIMENT)
    cache = {"H2H_CACHE": str(tmp_path / "cache")}
    done = h2h_here(tmp_path, "run", "leak.yaml", "--no-tracking", "--no-report", **cache)
    assert done.returncode == 2
    assert "quirk/leak violates 'causality' at small sizes" in done.stderr

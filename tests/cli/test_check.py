import json
from pathlib import Path

import pytest

from headtohead.testing import INVARIANTS
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS
from made import plugin_file

NAMES = [invariant.name for invariant in INVARIANTS]
RAISING = plugin_file("""
    def embed(self, positions, role):
        raise ValueError("to be done")
""")


@pytest.fixture
def plugin(tmp_path):
    """Write a plugin file."""

    def plugin(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return path

    return plugin


def rows(output):
    """Return outcome and rest of the line by invariant."""
    found = {}
    for line in output.splitlines():
        name, _, rest = line.partition(" ")
        if name in NAMES:
            found[name] = " ".join(rest.split())
    return found


DATASET = """
import itertools
from headtohead.plugin import Corpus, Dataset, Pair, hookimpl

calls = itertools.count()

class Letters(Dataset):
    splits = ("grouped", "length")

    @classmethod
    def load(cls, options, split, cache):
        next(calls)
        parts = ("train", "valid", "test") if split == "length" else (None,)
        pairs = [Pair(f"a {n}", f"b {n}", group=f"g{n}", split=parts[n % len(parts)]) for n in range(30)]
        return Corpus(pairs, "CC0", "nobody", ("a", "b"))

@hookimpl
def register_datasets():
    return {"letters": Letters}
"""

FAULTS = {
    "same-pairs": ('f"a {n}"', 'f"a {n} {next(calls)}"'),
    "texts": ('f"b {n}"', '"b\\tc"'),
    "parts": ("else (None,)", 'else ("test",)'),
    "groups": ('f"g{n}"', '"g"'),
    "prepared": ('("train", "valid", "test") if', '("train", "valid", "train") if'),
    "cache-key": (
        'splits = ("grouped", "length")',
        'splits = ("grouped", "length")\n    cache_key = classmethod(lambda *arguments: str(next(calls)))',
    ),
}


def test_a_sound_dataset_has_no_violation(h2h, plugin):
    code, output = h2h("check", "--plugin", plugin(DATASET))
    assert code == 0, output
    assert output.startswith("dataset/letters\n")
    assert [line.split()[1] for line in output.splitlines()[2:-2]] == ["holds"] * len(
        DATASET_INVARIANTS
    )


@pytest.mark.parametrize("invariant", FAULTS)
def test_a_planted_fault_violates_the_invariant_of_datasets(h2h, plugin, invariant):
    correct, fault = FAULTS[invariant]
    assert correct in DATASET
    code, output = h2h(
        "check",
        "dataset/letters",
        "--plugin",
        plugin(DATASET.replace(correct, fault)),
        "--format",
        "json",
    )
    (record,) = json.loads(output)
    outcomes = {found["invariant"]: found for found in record["invariants"]}
    assert (code, outcomes[invariant]["outcome"]) == (1, "violated")
    assert outcomes[invariant]["example"]


@pytest.mark.usefixtures("fewest")
def test_an_error_of_a_plugin_is_printed_once_with_the_invariants_that_raised_it(h2h, plugin):
    code, output = h2h("check", "--plugin", plugin(RAISING), "own")
    assert code == 1
    line = next(
        n
        for n, text in enumerate(Path("mine.py").read_text().splitlines(), 1)
        if "to be done" in text
    )
    assert output.count("to be done") == 1  # one error, raised by many invariants
    assert f"\nviolated: ValueError: to be done (mine.py:{line})\n  raised by " in output
    raised = output.partition("  raised by ")[2].splitlines()[0].split(", ")
    assert "causality" in raised
    assert len(raised) >= 5
    assert not set(raised) & set(rows(output))


FIRST_LENGTH = plugin_file("""
    def bias(self, query_positions, key_positions, role, layer):
        if not hasattr(self, "longest"):
            self.longest = key_positions.shape[-1]
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        return -distance[None, :, None] / self.longest
""")


@pytest.mark.usefixtures("fewest")
def test_a_scale_that_the_first_sentences_set_is_found(h2h, plugin):
    code, output = h2h("check", "positional/own", "--plugin", plugin(FIRST_LENGTH))
    assert code == 1, output
    assert "change of logits by a shorter first pass" in output


@pytest.mark.slow
def test_known_violations_of_a_recipe_are_printed_and_the_exit_code_is_0(h2h):
    assert h2h("check", "recipe/by-hand-en-fr")[0] == 0
    code, output = h2h("check", "recipe/slides-en-fr")
    found = rows(output)
    assert code == 0
    assert found["source-reaches-logits"].startswith("known violation 0 ")
    assert found["source-reaches-logits"].endswith(
        "; by quirks.notebooks.cross_attention_memory: decoder"
    )
    assert "\npitfall: source ignored (quirks.notebooks.cross_attention_memory): " in output


def test_a_plugin_file_of_which_no_entry_can_be_checked_fails(h2h, plugin):
    never = """
        @classmethod
        def incompatible_with(cls, options, setting):
            return "no model is large enough"

        def bias(self, query_positions, key_positions, role, layer):
            return None
    """
    two = plugin_file(never, name="never").replace('": Own', '": Own, "too": Own')
    code, output = h2h("check", "--plugin", plugin(two))
    assert code == 1
    assert output.splitlines() == [
        "not checked: positional/never: positional/never is incompatible with every small configuration",
        "not checked: positional/too: positional/too is incompatible with every small configuration",
        "",
        "0 checked, 0 with violations",
        "2 not checked: positional/never, positional/too",
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["rotery"], "'rotary'"),
        (["attention/rotary"], "positional/rotary"),
        (["slurm"], "launcher/slurm"),
        (["rotary", "--set", "model.d_model=8"], "--set"),
        (["dataset/copy", "--set", "longst=5"], "'longest'"),
        (["dataset/tatoeba"], "data.file"),
        (["recipe/slides-en-fr", "--set", "model.d_modle=8"], "'d_model'"),
        (["--plugin", "mine.py"], "mine.py"),
        (["dataset/letters", "--plugin", "mine.py"], "ZeroDivisionError"),
        (["idle", "--plugin", "idle.py"], "positional/idle overrides no hook"),
    ],
)
def test_bad_input_is_one_line(h2h, plugin, tmp_path, arguments, named):
    (tmp_path / "idle.py").write_text(
        RAISING.replace('"own"', '"idle"').replace("def embed", "def _embed")
    )
    plugin(
        DATASET.replace("next(calls)\n", "next(calls) / 0\n")
        if "dataset/letters" in arguments
        else "import nothing"
    )
    code, output = h2h("check", *arguments)
    assert (code, output.count("\n")) == (2, 1)
    assert named in output


PER_LAYER = """
        if layer == 0:
            distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
            self.kept = -distance.double()[None, :, None]
        return self.kept
"""
TABLE = """
        return self.table[(query_positions[:, :, None] - key_positions[:, None, :]).abs()][None, :, None]

    table = torch.arange(9).double()
"""


@pytest.mark.parametrize(
    ("body", "error"), [(PER_LAYER, "no attribute 'kept'"), (TABLE, "out of bounds")]
)
def test_an_entry_is_checked_in_a_pattern_of_layers_and_in_decoder_only_models(
    h2h, plugin, monkeypatch, body, error
):
    """Faults: later layers use the bias of the first layer; distances are limited to those of a sentence."""
    head = 'properties = frozenset({"relative", "mirror-invariant"})\n\n    def bias('
    body = f"    {head}self, query_positions, key_positions, role, layer):{body}"
    one = [invariant for invariant in INVARIANTS if invariant.name == "causality"]
    monkeypatch.setattr("headtohead.testing.checks.examination.INVARIANTS", one)
    _, output = h2h("check", "--plugin", plugin("import torch\n" + plugin_file(body)))
    assert error in output

import json
import re

import pytest

import headtohead
from headtohead.planning.record import run_record
from made import plugin_file
from planning.conftest import SMALL

EXPERIMENT = (
    f"{SMALL}baseline: {{positional: sinusoidal}}\n"
    + """design:
  - product: {positional: [sinusoidal, none], masking.decoder: [padding-causal, causal]}
exclude: [{when: {positional: none, masking.decoder: causal}, reason: twice the same}]
seeds: 2
"""
)


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "order.yaml"
    path.write_text(EXPERIMENT)
    return path


def test_the_plan_lists_runs_and_the_reasons_for_exclusions(h2h, experiment):
    code, output = h2h("plan", experiment)
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert code == 0
    assert lines[0] == "order: q"
    assert lines[3] == "runs: 2 variants × 2 seeds = 4: 4 missing; 4 to run in 2 stacks"
    baseline = next(line for line in lines if "(baseline)" in line)
    assert baseline.startswith(
        "sinusoidal, a padding and causal mask in the decoder (baseline) 0/2 done"
    )
    assert any(line.endswith("; d_ff 16; attention width 8; path fused") for line in lines)
    assert "without positions, a causal mask in the decoder: twice the same (exclude)" in lines
    assert any(
        line.startswith(
            "a causal mask in the decoder = sinusoidal, a padding and causal mask in the"
        )
        for line in lines
    )
    assert any(line.startswith("a difference of 16.33 sd: about ") for line in lines)
    assert [path.name for path in experiment.parent.iterdir()] == ["order.yaml"]


def test_the_plan_as_json_is_the_record_with_states(h2h, experiment):
    code, output = h2h("plan", experiment, "--format", "json", "--seeds", 1)
    record = json.loads(output)
    assert code == 0
    assert [run["state"] for run in record["runs"]] == ["MISSING", "MISSING"]
    assert len(record["stacks"]) == 2
    assert record["estimate"]["seconds"] > 0
    assert record["power"][0]["contrasts"] == 1
    assert record["power"][0]["effect"] is None  # A single seed has no test.


def test_a_finished_run_is_shown_as_done(h2h, experiment, tmp_path):
    plan = headtohead.plan(experiment)
    run = plan.runs[0]
    folder = tmp_path / "runs" / "order" / run.directory
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run_record(plan, run).to_json()))
    (folder / "status.json").write_text('{"state": "DIVERGED", "reason": "loss is not finite"}')
    _, output = h2h("plan", experiment)
    assert "4: 1 diverged, 3 missing; 3 to run in 2 stacks" in output
    assert f"{run.directory}: DIVERGED, loss is not finite" in output
    assert "0/2 done, 1 diverged" in output


def test_a_missing_data_file_is_named_with_the_line_of_the_experiment_file(h2h, experiment):
    experiment.write_text(
        EXPERIMENT.replace("dataset: toy-grammar, size: 400", "dataset: pairs, file: /no/such.tsv")
    )
    code, output = h2h("plan", experiment)
    assert (code, output.count("\n")) == (2, 1)
    assert output.startswith(f"h2h: {experiment}:4: base.data: file '/no/such.tsv' does not exist")


EMBED = "def embed(self, positions, role): return "
BIAS = "def bias(self, query_positions, key_positions, role, layer): return "
DISTANCE = "(query_positions[:, :, None] - key_positions[:, None, :]).float()"


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (
            BIAS + f"{DISTANCE}.foo()",
            "AttributeError: 'Tensor' object has no attribute 'foo' (mine.py:9)",
        ),
        (
            BIAS + DISTANCE,
            "Own.bias returned a tensor [1, 8, 8]; return a tensor [member 1, batch 1, head 1 or 2, query 8, key 8]",
        ),
        (
            BIAS + "3.0",
            "Own.bias returned float; return a tensor [member 1, batch 1, head 1 or 2, query 8, key 8]",
        ),
        # Without the check, the last axis would broadcast to the width.
        (
            EMBED + "positions[:, None, :, None] * 1.0",
            "Own.embed returned a tensor [1, 1, 8, 1]; return a tensor [member 1, batch 1, time 8, d_model 8]",
        ),
        ("def build(self): self.x = self.parameter(2, menu=1)", "TypeError: .* 'menu' (mine.py:9)"),
    ],
)
def test_an_error_in_a_plugin_is_one_line_with_its_location(
    h2h, experiment, tmp_path, hook, message
):
    (tmp_path / "mine.py").write_text(plugin_file(hook, name="mine"))
    experiment.write_text(
        EXPERIMENT.replace("none]", "mine]").replace("positional: none", "positional: mine")
    )
    code, output = h2h("plan", experiment, "--plugin", "mine.py")
    assert code == 2
    pattern = re.escape(message).replace(r"\.\*", ".*")
    advice = "; correct the plugin, and test it with 'h2h check positional/mine --plugin mine.py'"
    if "; return a tensor" not in message:
        advice += " (h2h -v prints the traceback)"
    assert re.fullmatch(
        rf"h2h: a model with positional/mine fails: {pattern}{re.escape(advice)}\n", output
    ), output


def test_a_plugin_file_that_no_variant_uses_is_named(h2h, experiment, tmp_path):
    bias = f"{BIAS}{DISTANCE}[:, None, None]"
    (tmp_path / "mine.py").write_text(plugin_file(bias, name="mine"))
    note = "note: no variant has an entry of 'mine.py': positional/mine; name one in base or in the design"
    assert note in h2h("plan", experiment, "--plugin", "mine.py")[1]
    experiment.write_text(EXPERIMENT.replace("none]", "mine]"))
    code, output = h2h("plan", experiment, "--plugin", "mine.py")
    assert code == 0
    assert "no variant has an entry" not in output


def test_a_plugin_file_that_only_the_sweep_uses_is_not_named(h2h, experiment, tmp_path):
    schedule = "def rate(self, moment): return moment.lr\ndef final_rate(self): return 0.0"
    (tmp_path / "mine.py").write_text(plugin_file(schedule, "schedule", "mine"))
    experiment.write_text(EXPERIMENT + "tune: {train.schedule: [cosine, mine]}\n")
    code, output = h2h("plan", experiment, "--plugin", "mine.py")
    assert "no variant has an entry" not in output
    assert "mine" in output, code


BOOM = "raise ValueError('boom')"
SCHEDULE = "def rate(self, moment): return moment.lr"
MASK = "def mask(self, role, query, key, lengths): return None"


@pytest.mark.parametrize(
    ("family", "field", "body"),
    [
        ("schedule", "train.schedule", f"{SCHEDULE}\ndef final_rate(self): {BOOM}"),
        ("schedule", "train.schedule", f"{SCHEDULE}\ndef final_rate(self): return 'boom'"),
        ("masking", "masking.encoder", f"def __init__(self, options): {BOOM}"),
        ("masking", "masking.encoder", f"{MASK}\ndef role_properties(self, role): {BOOM}"),
        ("attention", "attention", f"@classmethod\ndef geometry(cls, options, model): {BOOM}"),
        ("attention", "attention", f"@classmethod\ndef only_length(cls, options, model): {BOOM}"),
        ("attention", "attention", f"@classmethod\ndef depends_on(cls, options): {BOOM}"),
        ("positional", "positional.encoder", f"@classmethod\ndef limit(cls, options): {BOOM}"),
        (
            "positional",
            "positional.encoder",
            f"@classmethod\ndef mechanisms_of(cls, options): {BOOM}",
        ),
        ("dataset", "dataset", f"@classmethod\ndef load(cls, options, split, cache): {BOOM}"),
        ("dataset", "dataset", f"@classmethod\ndef cache_key(cls, options, split, cache): {BOOM}"),
        ("quirk", "quirks", f"def __init__(self, options): {BOOM}"),
        ("quirk", "quirks", f"@classmethod\ndef key_sides(cls, options): {BOOM}"),
        ("quirk", "quirks", f"def change_batch(self, batch): {BOOM}"),
        ("quirk", "quirks", f"def change_model(self, model, build): {BOOM}"),
    ],
)
def test_an_error_of_a_plugin_that_the_plan_calls_names_the_entry(
    h2h, experiment, tmp_path, family, field, body
):
    options = "from headtohead.plugin import Options\nclass Mine(Options):\n    x: int = 0\n"
    source = plugin_file(f"Options = Mine\n{body}", family, "mine", options)
    (tmp_path / "mine.py").write_text(source)
    chosen = "{mine: {x: 1}}" if family == "quirk" else "mine"
    if family == "dataset":
        text = EXPERIMENT.replace("dataset: toy-grammar, size: 400", "dataset: mine")
    else:
        baseline = f"baseline: {{{field}: {chosen}}}"
        text = EXPERIMENT.replace("baseline: {positional: sinusoidal}", baseline)
    experiment.write_text(text[: text.index("design:")] + "seeds: 1\n")
    code, output = h2h("plan", experiment, "--plugin", "mine.py")
    assert code == 2, output
    (line,) = output.splitlines()
    assert f"{family}/mine fails: " in line
    assert "Error: " in line
    assert "boom" in line or "'str' and 'float'" in line
    command = f"h2h check {family}/mine --plugin mine.py"
    if family in ("quirk", "schedule"):
        command = "h2h check FILE.yaml"
    advice = f"test it with '{command}'"
    assert advice in line

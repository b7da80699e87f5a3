"""Names of other tools lead to ours: in fields, values, names of entries, commands, options and files."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given

from headtohead.cli import data, main, summaries
from headtohead.config.builder import resolve
from headtohead.config.loading import load_text
from headtohead.config.validation_errors import configuration_fields
from headtohead.data.metrics import TRANSLATION
from headtohead.errors import MAX_NAMES, edit_distance, nearest, similar, similar_file
from headtohead.plugins.registry import find_dataset, find_positional
from headtohead.schema.metric import measured
from headtohead.schema.roles import ROLES
from headtohead.synonyms import _NAMES_ELSEWHERE
from made import refused
from made.texts import random_texts

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "experiment.schema.json"
LAYER_NORM = "; type norm: NAME; h2h plugins norm lists them; model.norm is their position: pre, post or sandwich"
SIZES = "; for example, sizes: [{model.d_model: 32}, {model.d_model: 64}]"
DEVICE = "; the device is an option of h2h run: --device cuda or --device cpu"


def failure(field: str, value: object = 1) -> str:
    return refused(resolve, {"train": {"epochs": 1}, field: value})


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("train.min_lr", "; type schedule: {name: cosine, final_lr: 1.0e-4}"),
        ("train.seed", "; write 'seeds' at the top level of the experiment file, outside base"),
        ("train.device", DEVICE),
        ("model.vocab_size", "; did you mean 'data.vocabulary.max_size'?"),
        ("model.attention", "; did you mean 'attention', a field of base?"),
        ("model.decoder_only", "; did you mean 'architecture'?"),
        ("hidden_size", "; did you mean 'model.d_model'?"),
        ("model.hidden_dropout_prob", "; did you mean 'dropout_residual'?"),
        ("model.num_experts", "; mixtures of experts do not exist here"),
        ("train.save_steps", "; did you mean 'checkpoint_seconds'?"),
        ("train.max_grad_norm", "; did you mean 'clip_norm'?"),
        ("train.optim", "; did you mean 'optimizer'?"),  # similar, without a row of the table
    ],
)
def test_fields_of_other_tools_lead_to_ours(field, hint):
    assert failure(field).endswith(hint)


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("positional", "rope", "unknown positional 'rope'; did you mean 'rotary'?"),
        ("attention", "gqa", "unknown attention 'gqa'; did you mean 'grouped-query'?"),
        (
            "model.norm",
            "rmsnorm",
            f"expected 'pre', 'post' or 'sandwich', got 'rmsnorm'{LAYER_NORM}",
        ),
        (
            "train.optimizer",
            "AdamW",
            "expected 'adam', 'adamw' or 'muon', got 'AdamW'; did you mean 'adamw'?",
        ),
        ("train.clip_norm", "none", "expected a valid number, got 'none'; type null"),
        ("model.architecture", "gpt", "did you mean 'decoder-only'?"),
        (
            "model.d_ff",
            "4*d",
            "got '4*d'; for example, d_ff: 256, or d_ff: 4x for four times d_model",
        ),
        ("train.lr", "1e-3", "expected a valid number, got '1e-3'; type 1e-3"),
        ("train.steps", "1_000", "expected a valid integer, got '1_000'; type 1000"),
        (
            "data",
            {"dataset": "text", "block_size": 8},
            "field 'block_size' of dataset 'text'; did you mean 'block'?",
        ),
        (
            "data.dataset",
            "a.csv",
            "'a.csv' is a file, not a dataset; type dataset: pairs with file: a.csv",
        ),
        (
            "positional",
            {"name": "rotary", "base": 10},
            "unknown field 'base'; did you mean 'theta'?",
        ),
        (
            "model.layers",
            [{"attention": "window"}],
            "a list is a pattern of layers: masking.decoder: [window, causal]",
        ),
        (
            "train.lr",
            [0.1],
            "type design: [{product: {train.lr: [...]}}]; to select the best, tune: {train.lr: [...]}",
        ),
    ],
)
def test_values_of_other_tools_lead_to_ours(field, value, hint):
    assert failure(field, value).endswith(hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {epochs: 1}", "train: unknown field 'train'; did you mean 'base.train'?"),
        (
            "learning_rate: 0.1",
            "learning_rate: unknown field 'learning_rate'; did you mean 'base.train.lr'?",
        ),
        (
            "metrics: {margin: 1}",
            "metrics.margin: unknown field 'margin'; did you mean 'margin' at the top level of the file?",
        ),
        (
            "sizes: {model.d_model: [32, 64]}",
            f"sizes: expected a list, got {{'model.d_model': [32, 64]}}{SIZES}",
        ),
        (
            "base: {train: {lr: ${lr}}}",
            "not valid YAML: references such as ${model.d_model} do not exist; type the value",
        ),
        (
            "description: a: b",
            "not valid YAML: a colon in a text without quotes, or no colon in the line above",
        ),
        (
            "design: [{positional: [rotary]}]",
            "design[0].positional: 'positional' is an axis; write product: {positional: [...]}, or one_at_a_time",
        ),
    ],
)
def test_fields_outside_base_lead_to_their_place(text, message):
    assert refused(load_text, f"question: q\n{text}\n", Path("x.yaml")) == f"x.yaml:2: {message}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("run x.yaml --epochs 3", "no such option '--epochs'; type --set train.epochs=VALUE"),
        ("run x.yaml --dry-run", "no such option '--dry-run'; type h2h plan"),
        ("run x.yaml --output-dir r", "no such option '--output-dir'; did you mean '--reports'?"),
        (
            "run x.yaml lr=1",
            "got unexpected extra argument (lr=1); to set a field, type --set PATH=VALUE",
        ),
        ("status x --epochs 2", "no such option '--epochs'"),
    ],
)
def test_options_of_other_tools_lead_to_ours(words, line):
    done = CliRunner().invoke(main, words.split(), prog_name="h2h")
    assert (done.exit_code, done.output) == (
        2,
        f"h2h: {line} (options: h2h {words.split()[0]} --help)\n",
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("train", "; did you mean 'run'?"),
        ("a.yaml", "; type h2h run a.yaml"),
        ("help", "; type h2h --help"),
    ],
)
def test_commands_of_other_tools_lead_to_ours(word, hint):
    assert CliRunner().invoke(main, [word]).output == f"h2h: unknown command '{word}'{hint}\n"


MANY = [f"name{number:03}" for number in range(MAX_NAMES + 5)]


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("alibbi", ["rotary", "alibi"], "; did you mean 'alibi'?"),
        ("ALIBBI", ["alibi"], "; did you mean 'alibi'?"),
        (
            "rope",
            ["ropes", "rotary"],
            "; did you mean 'rotary'?",
        ),  # a synonym before a similar name
        ("positional/rope", ["rotary", "positional/rotary"], "; did you mean 'positional/rotary'?"),
        ("base/rope", ["base/alibi"], "; known: base/alibi"),  # hints are about fields
        (
            "valid/xyz",
            ["valid/bleu"],
            "; known: valid/bleu",
        ),  # an equal prefix makes no names similar
        ("abc", ["abx", "c", "abx"], "; did you mean 'abx'?"),
        ("abcd", ["abxy"], "; known: abxy"),
        (
            "bsae",
            ["base", "same"],
            "; did you mean 'base'?",
        ),  # swapped letters; as many in common with both
        (
            "dropout_emb",
            ["dropout_ffn", "dropout_embedding"],
            "; did you mean 'dropout_embedding'?",
        ),
        ("test/blue", ["test/bleu", "test/loss"], "; did you mean 'test/bleu'?"),
        ("a", ["c", "b", "c"], "; known: b, c"),
        (
            "method",
            ["type", "factor"],
            "; known: factor, type",
        ),  # an option of a component, also a name of wandb
        ("a", [], ""),
        ("a", MANY, f"; known: {', '.join(MANY[:MAX_NAMES])} and 5 more"),
    ],
)
def test_an_unknown_name_has_a_synonym_a_hint_a_similar_name_or_the_known_names(name, known, hint):
    assert nearest(name, known) == hint


def naive_edits(first: str, second: str) -> int:
    """The edits by recursion: the last characters are inserted, deleted, replaced, kept or swapped."""
    if not first or not second:
        return len(first) + len(second)
    edits = [
        naive_edits(first[:-1], second) + 1,
        naive_edits(first, second[:-1]) + 1,
        naive_edits(first[:-1], second[:-1]) + (first[-1] != second[-1]),
    ]
    if len(first) > 1 and first[-2:] == second[-2:][::-1] and len(second) > 1:
        edits.append(naive_edits(first[:-2], second[:-2]) + 1)
    return min(edits)


@given(random_texts("abc", max_size=5), random_texts("abc", max_size=5))
def test_edits_are_counted_as_by_recursion(first, second):
    assert edit_distance(first, second) == naive_edits(first, second)


def test_names_of_runs_and_experiments_have_no_synonyms():
    assert similar("rope", ["rotary"]) == ""
    assert similar("Ropes", ["rope"]) == "; did you mean 'rope'?"


def test_a_missing_file_suggests_a_similar_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("experiments", "later"):
        Path(folder).mkdir()
    for name in (
        "order.yaml",
        "later/quickstart.yaml",
        "experiments/quickstart.yaml",
        "experiments/notes.md",
    ):
        Path(name).touch()
    assert similar_file(Path("ordr.yaml")) == "; did you mean 'order.yaml'?"
    assert similar_file(Path("quickstart.yaml")) == "; did you mean 'experiments/quickstart.yaml'?"
    assert (
        similar_file(Path("experimens/quickstrt.yaml"))
        == "; did you mean 'experiments/quickstart.yaml'?"
    )
    assert (
        similar_file(Path("quickstart"), ".yaml") == "; did you mean 'experiments/quickstart.yaml'?"
    )
    assert similar_file(Path("Order.yaml")) == "; did you mean 'order.yaml'?"
    assert similar_file(Path("notes.yaml"), ".yaml") == ""
    assert similar_file(tmp_path / "ordr.yaml") == f"; did you mean '{tmp_path / 'order.yaml'}'?"


def test_the_table_names_only_what_exists(registry):
    options = [
        option
        for name in summaries()
        for parameter in main.get_command(None, name).params
        for option in parameter.opts
    ]
    fields = {
        name for dataset in ("pairs", "text") for name in find_dataset(dataset).Options.model_fields
    }
    known = {
        *re.findall(r'"([\w-]+)"', SCHEMA.read_text(encoding="utf-8")),
        *measured(TRANSLATION, ROLES),
        *find_positional("rotary").Options.model_fields,
        *(f"data.{name}" for name in fields),
        *summaries(),
        *options,
        *data.command.commands,
    }
    names = [name for name in _NAMES_ELSEWHERE if " " not in name]
    assert [
        name for name in names if name not in known and name not in configuration_fields()
    ] == []

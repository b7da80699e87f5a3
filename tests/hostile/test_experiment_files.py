"""Hostile experiment files: each is refused in one line, with little time and memory; every number has limits."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headtohead.config.yaml_text import MAX_BYTES, MAX_NODES, parse
from headtohead.plugins.registry import current
from headtohead.schema.experiment_file import ExperimentFile
from headtohead.schema.run_config import SECTIONS, RunConfig
from made import error_line, kind_table, matches

QUESTION = "question: q\n"
VALID = "question: q\nbase: {data: {size: 60}, model: {layers: 1}, train: {epochs: 1}}\n"

SECONDS = 2.0
MEGABYTES = 500


Case = tuple[str, str, str | bytes, tuple[str, ...], str]
"""Kind, name, the content of an experiment file, the options of ``h2h plan``, and the error after the file's name."""


def text(kind: str, name: str, written: str, message: str) -> Case:
    """A case with text after the question, hence from line 2 on."""
    return kind, name, QUESTION + written, (), message


def nested(levels: int, first: str, following: str) -> str:
    """Return aliases of aliases: each level holds ten times the level before."""
    lines = [f"  a0: &a0 {first}\n"]
    lines += [
        f"  a{i}: &a{i} {following.replace('*', ','.join([f'*a{i - 1}'] * 10))}\n"
        for i in range(1, levels)
    ]
    return "base:\n" + "".join(lines)


def base(kind: str, path: str, value: str, message: str) -> Case:
    return text(
        kind, f"{path} {value}"[:30], f"base:\n  {path}: {value}\n", f":3: base.{path}{message}"
    )


def override(setting: str, message: str) -> Case:
    return "override", setting[:30], VALID, ("--set", setting), message


TOO_MANY = "more than 100,000 values and keys or 10,000,000 characters, aliases expanded"
TOO_DEEP = "more than 100 nested lists and mappings"
KEYS = "keys are text of at most 200 printable characters, got"

CASES = (
    text(
        "size",
        "bytes",
        f"description: {'x' * MAX_BYTES}\n",
        ": 10,000,026 bytes, more than the limit of 10,000,000",
    ),
    text("size", "nodes", f"base: {{a: [{'1,' * MAX_NODES}]}}\n", ":2: base: " + TOO_MANY),
    text("alias", "bomb", nested(40, "[x,x,x,x,x,x,x,x,x,x]", "[*]"), ":2: base: " + TOO_MANY),
    text(
        "alias",
        "text",
        f"base:\n  a: &a {'x' * 1_000_000}\n  b: [{','.join(['*a'] * 60)}]\n",
        ":2: base: " + TOO_MANY,
    ),
    text("alias", "itself", "base: &a {model: *a}\n", ":2: base: " + TOO_DEEP),
    text("depth", "lists", "base: " + "[" * 100_000, ":2: " + TOO_DEEP),
    text(
        "runs",
        "seeds",
        "seeds: 100001\n",
        ": 1 variant × 100,001 seeds are 100,001 runs, more than the limit of*",
    ),
    text(
        "runs",
        "thousands of digits",
        f"design: [{{product: {{{', '.join(f'a{i}: [1, 2, 3]' for i in range(12_000))}}}}}]\n",
        ": more than 10^15 runs, above the limit of 100,000; vary fewer values",
    ),
)

FIELDS = (
    text(
        "tag",
        "value",
        "base: {data.file: !!python/object/apply:os.system [id]}\n",
        ":2: tag * is not allowed",
    ),
    text("tag", "key", "base: {? !!str [a] : b}\n", ":2: tag * is not allowed"),
    text("key", "list", "base: {? [a] : b}\n", f":2: base: {KEYS} a list or a mapping"),
    base("digits", "train.steps", "9" * 399, ": expected a whole number below 2^63, got '999*…"),
    base("digits", "train.lr", ".inf", ": expected a finite number, got '.inf'"),
    text(
        "seeds",
        "2**32",
        "seeds: [1, 4294967296]\n",
        ":2: seeds[1]: must be less than or equal to 1000000, got 4294967296",
    ),
    override(
        "train.lr=" + "[" * 200,
        f"--set train.lr={'[' * 200}: more than 100 nested lists and mappings",
    ),
    (
        "encoding",
        "nul",
        QUESTION.encode() + b"base: \0\n",
        (),
        ":2: not valid YAML: a character that is not allowed",
    ),
    (
        "encoding",
        "utf-16",
        QUESTION.encode("utf-16"),
        (),
        ":1: not UTF-8 text (byte 0xff); save the file as UTF-8",
    ),
    text(
        "encoding",
        "surrogate",
        'description: "\\ud800"\n',
        ":2: not valid YAML: found invalid Unicode character escape*",
    ),
    text("encoding", "tab", "\tbase: {}\n", ":2: not valid YAML: a tab; indent with spaces"),
    text("encoding", "escape in key", 'base: {"a\\e[31m": 1}\n', f":2: base: {KEYS} 'a\\x1b[31m'"),
    text(
        "encoding",
        "duplicate",
        "base: {a: 1, a: 2}\n",
        ":2: base: duplicate key 'a', first on line 2",
    ),
    base(
        "field",
        "model.d_model",
        "1000000000",
        ": must be less than or equal to 65536, got 1000000000",
    ),
    base("field", "train.betas", "[0.9, 1]", "[1]: must be less than 1, got 1"),
    text(
        "field",
        "tune",
        "base: {train: {steps: 1}}\ntune: {train.lr: [1e-3, 0]}\n",
        ":3: tune.train.lr[1]: must be greater than 0, got 0",
    ),
    override(
        "model.layers=1000000",
        "--set model.layers=1000000: must be less than or equal to 256, got 1000000",
    ),
    base(
        "memory",
        "data",
        "{size: 1000000000}",
        ".size: must be less than or equal to 100000, got 1000000000",
    ),
    text(
        "field",
        "memory",
        "base: {train: {epochs: 1}, model: {d_model: 65536, layers: 256}}\n",
        ":2: base.model: variant 'baseline' has * reduce d_model, d_ff, layers or the vocabulary",
    ),
)


@pytest.mark.timed
@kind_table("content, options, message", CASES)
def test_a_hostile_file_is_refused_in_one_line_with_little_time_and_memory(
    content, options, message, tmp_path, h2h_process
):
    (tmp_path / "x.yaml").write_text(content)
    ended = h2h_process(tmp_path, "plan", "x.yaml", *options, H2H_CACHE="cache")
    line = error_line(ended)
    assert matches(line, "x.yaml" + message), line
    assert len(line) < 1000
    assert ended.peak_bytes < MEGABYTES * 1e6
    assert ended.cpu_seconds < SECONDS
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [case[2:] for case in FIELDS],
    ids=[case[1] for case in FIELDS],
)
def test_a_value_beyond_its_limits_is_refused_before_anything_is_prepared(
    content, options, message, tmp_path, refusal
):
    (tmp_path / "x.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    line = refusal("plan", "x.yaml", *options, H2H_CACHE="cache")
    assert matches(line, message if options else "x.yaml" + message), line


def test_a_path_that_is_no_file_is_refused_at_once(tmp_path, refusal):
    fifo, folder, link = tmp_path / "fifo.yaml", tmp_path / "folder.yaml", tmp_path / "link.yaml"
    os.mkfifo(fifo)
    folder.mkdir()
    link.symlink_to("/dev/zero")
    for path in (fifo, link, Path("/dev/zero"), folder):
        line = refusal("plan", str(path))
        assert line == f"cannot read '{path}': not a regular file; name a readable experiment file"
    link.unlink()
    link.symlink_to("no.yaml")
    assert refusal("plan", str(link)).endswith(
        "does not exist; it is a link to 'no.yaml', which does not exist"
    )
    assert "File name too long; name a readable" in refusal("plan", "x" * 300)


@pytest.mark.slow
def test_a_file_at_the_limits_is_read():
    value, _ = parse(f"a: [{','.join(['1'] * (MAX_NODES - 3))}]", "x.yaml")
    assert len(value["a"]) == MAX_NODES - 3
    assert len(parse("a: " + "x" * (MAX_BYTES - 3), "x.yaml")[0]["a"]) == MAX_BYTES - 3


# --- every number of the schema has limits ---

Schema = dict[str, Any]


def numbers(
    schema: Schema, whole: Schema | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, Schema]]:
    """Yield the path and the JSON schema of every number in a JSON schema."""
    whole = whole or schema
    schema = whole["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if schema.get("type") in ("integer", "number"):
        yield ".".join(path), schema
    inner = [(path, part) for part in schema.get("anyOf", ())]
    inner += [((*path, name), part) for name, part in schema.get("properties", {}).items()]
    inner += [
        ((*path, f"[{index}]"), part) for index, part in enumerate(schema.get("prefixItems", ()))
    ]
    rest = (schema.get("items"), schema.get("additionalProperties"))
    inner += [((*path, "[0]"), part) for part in rest if isinstance(part, dict)]
    for place, part in inner:
        if (
            place.count("next_layers") < 2
        ):  # the entries of further layers have the schema of the first
            yield from numbers(part, whole, place)


def limits(number: Schema) -> tuple[float | None, float | None]:
    """Return the lower and the upper limit of a number."""
    return number.get("minimum", number.get("exclusiveMinimum")), number.get(
        "maximum", number.get("exclusiveMaximum")
    )


def test_every_number_of_the_schema_has_limits():
    entries = [entry for entry in current().all() if entry.distribution == "headtohead"]
    models = (
        ExperimentFile,
        RunConfig,
        *SECTIONS.values(),
        *(entry.entry.Options for entry in entries),
    )
    found = [
        (model, path, limits(number))
        for model in models
        for path, number in numbers(model.model_json_schema())
    ]
    assert len(found) > 120
    assert [case for case in found if None in case[2]] == []

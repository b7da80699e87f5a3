"""Damaged, edited and random records: commands print one line that names the file, the field and what to do."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headtohead import files
from made import case_table, kind_table
from made.fake_study import edit
from made.study import Study

FILES = {
    "experiment": "experiment.json",
    "run": "{run}/run.json",
    "status": "{run}/status.json",
    "results": "{run}/results.json",
    "heads": "{run}/heads.json",
    "probes": "{run}/attention/probes.json",
    "maps": "{run}/attention/maps.safetensors",
    "metrics": "{run}/metrics.jsonl",
    "translations": "{run}/translations.tsv",
    "examples": "{run}/examples.safetensors",
    "checkpoint": "{run}/checkpoint.safetensors",
    "vocabulary": "{run}/vocabulary.json",
    "stack": ".stacks/{stack}/stack.json",
    "lease": ".leases/{run}.json",
}
REPORT, PLAN, RUN_AGAIN, SYNC = (
    ("report", "small"),
    ("plan", "small.yaml"),
    ("run", "small.yaml"),
    ("sync", "small"),
)
STATUS, ABLATE, TRANSLATE = (
    ("status", "small"),
    ("ablate-heads", "RUN"),
    ("generate", "RUN", "the cat"),
)
ABLATE_AGAIN, TRACE = (
    (*ABLATE, "--fresh", "--no-decode"),
    ("trace", "RUN", "the cat", "--target", "le chat"),
)
READERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "experiment": (STATUS, REPORT, PLAN, ABLATE, RUN_AGAIN, SYNC),
    "run": (TRANSLATE, REPORT, PLAN, STATUS, TRACE, ABLATE_AGAIN, RUN_AGAIN, SYNC),
    "status": (STATUS, REPORT, PLAN, TRANSLATE, RUN_AGAIN, SYNC),
    "results": (REPORT, STATUS, PLAN, RUN_AGAIN, SYNC),
    "heads": (ABLATE, REPORT, SYNC),
    "probes": (REPORT, ABLATE_AGAIN, SYNC),
    "maps": (REPORT, SYNC),
    "metrics": (REPORT, STATUS, SYNC),
    "translations": (REPORT, SYNC),
    "examples": (REPORT,),
    "checkpoint": (TRANSLATE, TRACE, SYNC),
    "vocabulary": (TRANSLATE, SYNC),
    "stack": (("reproduce", "RUN"), PLAN, RUN_AGAIN),
    "lease": (STATUS, REPORT, ABLATE_AGAIN),
}
"""By record: commands that read it. The default tier calls the first."""

Damage = Callable[[Path], object]


def damaged(record: str, name: str, damage: Damage, *facts: str, kind: str = "") -> tuple[Any, ...]:
    """A row of ``CASES``: kind, name, the damaged record, and what the error line has."""
    return kind or record, name, record, damage, facts


def content(value: bytes) -> Damage:
    return lambda path: path.write_bytes(value)


def field(*path: str | int, value: Any = None, remove: bool = False) -> Damage:
    """Set or remove a field of a JSON file."""

    def damage(file: Path) -> None:
        record = inner = files.read_json(file)
        for part in path[:-1]:
            inner = inner[part]
        if remove:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        file.write_text(json.dumps(record), encoding="utf-8")

    return damage


def twice(path: Path) -> None:
    """Repeat the first variant of a record."""
    variants = files.read_json(path)["variants"]
    edit(path, variants=[*variants, variants[0]])


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def large(path: Path) -> None:
    """Write a sparse file of 1 TiB."""
    with path.open("r+b") as file:
        file.truncate(2**40)


def tensor(ending: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    """Replace the first tensor with this ending of its name in a safetensors file."""

    def damage(path: Path) -> None:
        loaded = load_file(path)
        name = next(name for name in loaded if name.endswith(ending))
        save_file(loaded | {name: change(loaded[name]).contiguous()}, path)

    return damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def imported(words: dict[str, int], vocabulary: Any) -> Damage:
    """Turn the run into an imported checkpoint with these vocabularies."""

    def damage(path: Path) -> None:
        origin = {
            "file": "a.pt",
            "sha256": "ab" * 32,
            "form": "x",
            "words": words,
            "positions": None,
        }
        field("imported", value=origin)(path.with_name("run.json"))
        path.write_text(json.dumps(vocabulary), encoding="utf-8")

    return damage


NESTED = b"[" * 100_000 + b"]" * 100_000
NO_FILE = "not a regular file"

CASES = [
    *(
        damaged(
            record, record, content(NESTED), Path(FILES[record]).name, "recursion", kind="nested"
        )
        for record in ("experiment", "heads", "probes")
    ),
    damaged(
        "experiment", "null", content(b"null"), "experiment.json", "Input should be", kind="null"
    ),
    damaged(
        "experiment",
        "binary",
        content(b"\xff\xfe\x00"),
        "experiment.json",
        "not UTF-8 text",
        kind="binary",
    ),
    damaged("experiment", "fifo", fifo, "experiment.json", NO_FILE, kind="fifo"),
    damaged("experiment", "large", large, "experiment.json", "more than the maximum", kind="large"),
    damaged("run", "fifo", fifo, "run.json is missing"),
    damaged(
        "experiment",
        "unknown-baseline",
        field("baseline", value="x"),
        "baseline: 'x'",
        "no variant",
    ),
    damaged("experiment", "variant-twice", twice, "listed twice"),
    damaged(
        "experiment", "other-metric", field("metrics", "primary", value="x"), "metrics.primary"
    ),
    damaged(
        "experiment",
        "infinite-axis",
        field("variants", 0, "axes", "positional", value=1e999),
        "axes",
    ),
    damaged(
        "experiment",
        "outside",
        field("runs", 0, "directory", value="../../etc"),
        "not a path inside",
    ),
    damaged(
        "experiment",
        "config",
        field("variants", 0, "config", value={}),
        "config.data: Field required",
    ),
    damaged("run", "d_model", field("config", "model", "d_model", value=10**9), "run.json"),
    damaged("run", "infinite", field("flops_per_token", value=float("inf")), "flops_per_token"),
    damaged("run", "true", field("seed", value=True), "seed: Input should be a valid integer"),
    damaged("run", "date", field("created", value="2026-99-99"), "created"),
    damaged(
        "run",
        "plugin",
        field("config", "positional", "encoder", "name", value="x"),
        "positional 'x'",
    ),
    damaged(
        "run",
        "option",
        field("config", "positional", "encoder", "options", value={"arithmetic": "x"}),
        "positional 'sinusoidal': arithmetic: ",
    ),
    damaged("run", "unknown", field("code", value="x"), "code: Extra inputs are not permitted"),
    damaged("status", "state", field("state", value="FINE"), "state"),
    damaged("status", "no-zone", field("started", value="2026-01-01T00:00:00"), "time zone"),
    damaged("results", "metric-name", field("metrics", "seed", value=3), "metrics.seed"),
    damaged(
        "results",
        "bucket-score",
        field("buckets", 0, "scores", "loss", value=-7),
        "buckets.0.scores",
    ),
    damaged(
        "heads", "effect", field("heads", 0, "only-one", "loss", value="x"), "heads.0.only-one.loss"
    ),
    damaged("probes", "null", field(0, value=None), "0: Input should be"),
    damaged("probes", "other-length", field(0, "source_tokens", value=["a"]), "expected F32"),
    damaged("maps", "torn", cut, "maps.safetensors", "not a readable safetensors file"),
    damaged(
        "maps",
        "not-a-number",
        tensor("encoder", lambda a: a * float("nan")),
        "encoder",
        "not finite",
    ),
    damaged("maps", "role", lambda path: rename(path, "0/cross", "0/across"), "'0/across' is F32"),
    damaged("translations", "columns", content(b"a\nb\n"), "line 2: expected source, references"),
    damaged("translations", "fifo", fifo, "translations.tsv", NO_FILE),
    damaged("examples", "torn", cut, "examples.safetensors", "not a file of values per example"),
    damaged(
        "examples", "not-a-number", tensor("losses", lambda a: a * float("nan")), "not a file of"
    ),
    damaged("examples", "fifo", fifo, "examples.safetensors", NO_FILE),
    damaged("metrics", "fifo", fifo, "metrics.jsonl", NO_FILE),
    damaged("checkpoint", "torn", cut, "checkpoint.safetensors", "is damaged"),
    damaged("checkpoint", "not-a-number", tensor("", lambda a: a * float("nan")), "not finite"),
    damaged(
        "checkpoint",
        "shape",
        tensor("", lambda a: torch.zeros(3, 3, 3)),
        "does not match the configuration",
    ),
    damaged("checkpoint", "state", lambda path: state(path, NESTED), "is damaged"),
    damaged(
        "vocabulary",
        "too-long",
        imported({"source": 1, "target": 1}, {"source": ["a", "b"], "target": ["a"]}),
        "2 source words, the checkpoint 1",
    ),
    damaged(
        "vocabulary",
        "absurd",
        imported({"source": 2**31 - 1, "target": 2**31 - 1}, {"source": None, "target": None}),
        "run.json' does not fit into the memory",
    ),
    damaged(
        "stack",
        "outside",
        field("members", 1, "directory", value="../../../outside"),
        "not a path inside",
    ),
    damaged("lease", "fifo", fifo, NO_FILE),
]


def rename(path: Path, old: str, new: str) -> None:
    arrays = dict(load_file(path))
    arrays[new] = arrays.pop(old)
    save_file(arrays, path)


def state(path: Path, text: bytes) -> None:
    save_file(load_file(path), path, metadata={"state": text.decode()})


def plant(study: Any, record: str, damage: Damage) -> None:
    """Damage a record, with checksums that agree with it; a run with a damaged lease has not ended."""
    (stack,) = study.experiment.glob(".stacks/*")
    path = study.experiment / FILES[record].format(run=study.first.name, stack=stack.name)
    path.parent.mkdir(exist_ok=True)
    damage(path)
    if record != "status":
        study.record_checksums()
    if record == "lease":
        edit(study.first / "status.json", state="RUNNING")


@kind_table("record, damage, facts", CASES)
def test_a_damaged_record_gives_one_line(
    record: str, damage: Damage, facts: tuple[str, ...], study: Any
) -> None:
    plant(study, record, damage)
    line = study.refusal(*READERS[record][0])
    for fact in facts:
        assert fact in line


@pytest.mark.parametrize("damage", [content(NESTED), content(b'{"pid": -1}')])
def test_a_damaged_lease_is_no_lease(study: Study, damage: Damage) -> None:
    plant(study, "lease", damage)
    assert "1 INTERRUPTED" in study.h2h(*STATUS).stdout


# --- random records ---

LEASE = {"token": "a" * 32, "pid": 1, "host": "h", "boot": "b"}
NUMBERS = (-1, 0, True, 7.5, 10**18, 10**400, float("nan"), float("inf"))
TEXTS = ("", "x", "\0", "\ud800", "../../etc", "/etc", "2026-99-99", "=1", "[red]x", "a\nb")
VALUES = (None, *NUMBERS, *TEXTS, [], {}, [[None]], ["x", 1], {"": {"x": []}})


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every field, of lists only the first two entries."""
    yield path
    if isinstance(value, (dict, list)):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value[:2]):
            yield from paths(inner, (*path, name))


def mutated(record: Any, rng: random.Random) -> Any:
    """Replace, remove or add a field."""
    *parents, name = rng.choice(list(paths([record]))[1:])
    root = inner = [record]
    for part in parents:
        inner = inner[part]
    kind = rng.choice(("replace", "replace", "remove", "add"))
    if kind == "remove" and parents:
        del inner[name]
    else:
        inner["new" if kind == "add" and isinstance(inner, dict) else name] = rng.choice(VALUES)
    return root[0]


def random_content(original: bytes, suffix: str, rng: random.Random) -> bytes:
    """Change a field of JSON, or replace, cut or repeat bytes."""
    if suffix in (".json", ".jsonl") and rng.random() < 0.7:
        first, end, rest = original.partition(b"\n") if suffix == ".jsonl" else (original, b"", b"")
        changed = json.dumps(mutated(json.loads(first), rng), ensure_ascii=False)
        return changed.encode("utf-8", "surrogatepass") + end + rest
    at = rng.randrange(len(original))
    return original[:at] + rng.choice((b"", original, rng.randbytes(3) + original[at + 3 :]))


@pytest.mark.timeout(1800)
@case_table(
    ("record", "given"),
    [(record, seed) for seed in (0, 1, None) for record in READERS],
    default=4,
)
def test_a_random_record_gives_at_most_one_line(
    record: str, given: int | None, study: Any, store_template: Path
) -> None:
    """Other examples in every run of the slow tier."""
    seed = random.randrange(2**32) if given is None else given
    shutil.copyfile(store_template, study.folder / "mlflow.db")

    def change(path: Path) -> None:
        original = json.dumps(LEASE).encode() if record == "lease" else path.read_bytes()
        path.write_bytes(random_content(original, path.suffix, random.Random(seed)))

    plant(study, record, change)
    commands = READERS[record]
    for command in (
        commands[:1] if given is not None else random.sample(commands, min(2, len(commands)))
    ):
        done = study.call(*command)
        lines = done.stderr.splitlines()
        assert done.returncode in (0, 1, 2), (seed, command, done.stderr)
        assert "Traceback" not in done.stdout + done.stderr, (seed, command, done.stderr)
        if done.returncode == 2:
            assert lines[-1].startswith("h2h: "), (seed, command, done.stderr)
            assert command == RUN_AGAIN or len(lines) == 1, (seed, command, done.stderr)

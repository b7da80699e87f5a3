"""Damaged, edited and random records: commands print one line that names the file, the field and what to do."""

from __future__ import annotations

import copy
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

if TYPE_CHECKING:
    from .conftest import Refusal, SmallStudy

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
    "checkpoint": "{run}/checkpoint.safetensors",
    "vocabulary": "{run}/vocabulary.json",
    "stack": ".stacks/{stack}/stack.json",
    "lease": ".leases/{run}.json",
}
REPORT, RUN_AGAIN = ("report", "small"), ("run", "small.yaml")
TRANSLATE, STATUS, ABLATE = ("translate", "RUN", "the cat"), ("status", "small"), ("ablate-heads", "RUN")
READER = {
    "experiment": STATUS,
    "run": TRANSLATE,
    "status": STATUS,
    "results": REPORT,
    "heads": ABLATE,
    "probes": (*ABLATE, "--fresh", "--no-decode"),
    "maps": REPORT,
    "metrics": REPORT,
    "translations": REPORT,
    "checkpoint": TRANSLATE,
    "vocabulary": TRANSLATE,
    "stack": ("reproduce", "RUN"),
    "lease": STATUS,
}
"""A command that reads the record."""

Damage = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """A damaged record, the command that reads it, and the facts of its error line."""

    kind: str
    name: str
    record: str
    damage: Damage
    facts: tuple[str, ...]
    command: tuple[str, ...] = ()


def damaged(record: str, name: str, damage: Damage, *facts: str, command: tuple[str, ...] = ()) -> Case:
    return Case(record, name, record, damage, facts, command)


def content(value: bytes) -> Damage:
    return lambda path: void(path.write_bytes(value))


def void(_: object) -> None:
    return None


def field(*path: str | int, value: Any = None, remove: bool = False) -> Damage:
    """Set or remove a field of a JSON file."""

    def damage(file: Path) -> None:
        record = json.loads(file.read_text("utf-8"))
        inner = record
        for part in path[:-1]:
            inner = inner[part]
        if remove:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        file.write_text(json.dumps(record), encoding="utf-8")

    return damage


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def new_fifo(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)


def large(path: Path) -> None:
    """Write a sparse file of 1 TiB."""
    with path.open("r+b") as file:
        file.truncate(2**40)


def tensors(**changes: Any) -> Damage:
    """Replace arrays of a safetensors file; keys are matched by their end."""

    def damage(path: Path) -> None:
        arrays = dict(load_file(path))
        for ending, change in changes.items():
            name = next(name for name in arrays if name.endswith(ending))
            arrays[name] = np.ascontiguousarray(change(arrays[name]))
        save_file(arrays, path)

    return damage


def weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    """Replace the first tensor of a checkpoint."""

    def damage(path: Path) -> None:
        from safetensors.torch import load_file

        loaded = load_file(path)
        name = next(iter(loaded))
        loaded[name] = change(loaded[name]).contiguous()
        save_torch(loaded, path)

    return damage


def header(**tensor: Any) -> Damage:
    """Replace the first tensor's entry in the header of a safetensors file."""

    def damage(path: Path) -> None:
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        entries = json.loads(data[8 : 8 + length])
        name = next(name for name in entries if name != "__metadata__")
        entries[name] |= tensor
        text = json.dumps(entries).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def imported(words: dict[str, int], vocabulary: Any) -> Damage:
    """Turn the run into an imported checkpoint with these vocabularies."""

    def damage(path: Path) -> None:
        origin = {"file": "a.pt", "sha256": "ab" * 32, "form": "x", "words": words, "positions": None}
        field("imported", value=origin)(path.with_name("run.json"))
        path.write_text(json.dumps(vocabulary), encoding="utf-8")

    return damage


NESTED = b"[" * 100_000 + b"]" * 100_000
JSON = ("experiment", "run", "status", "results", "heads", "probes", "stack")
NO_FILE = "not a regular file"
IMPORTED = field(
    "imported", value={"file": "a", "sha256": "b", "form": "c", "words": {"source": 1, "target": 1}, "positions": None}
)

CONTENTS = (
    ("nested", content(NESTED), "recursion"),
    ("null", content(b"null"), "Input should be"),
    ("binary", content(b"\xff\xfe\x00"), "not UTF-8 text"),
    ("fifo", fifo, NO_FILE),
    ("large", large, "more than the maximum"),
)
OPTIONAL = {("null", "probes")}
MISSING = {("fifo", record) for record in ("run", "results", "heads", "probes")}

CASES = [
    *(
        Case(
            kind,
            record,
            record,
            damage,
            (Path(FILES[record]).name, "is missing" if (kind, record) in MISSING else fact),
        )
        for kind, damage, fact in CONTENTS
        for record in JSON
        if (kind, record) not in OPTIONAL
        and (record != "results" or (kind, record) not in MISSING)  # the run is INTERRUPTED, and a report omits it
    ),
    damaged("experiment", "unknown-baseline", field("baseline", value="x"), "baseline: 'x'", "no variant"),
    damaged("experiment", "variant-twice", lambda path: twice(path, "variants"), "listed twice"),
    damaged("experiment", "other-metric", field("metrics", "primary", value="x"), "metrics.primary"),
    damaged("experiment", "infinite-axis", field("variants", 0, "axes", "positional", value=1e999), "axes"),
    damaged("experiment", "outside", field("runs", 0, "directory", value="../../etc"), "not a path inside"),
    damaged("experiment", "config", field("variants", 0, "config", value={}), "config.data: Field required"),
    damaged("run", "d_model", field("config", "model", "d_model", value=10**9), "run.json"),
    damaged("run", "infinite", field("flops_per_token", value=float("inf")), "flops_per_token"),
    damaged("run", "true", field("seed", value=True), "seed: Input should be a valid integer"),
    damaged("run", "date", field("created", value="2026-99-99"), "created"),
    damaged("run", "plugin", field("config", "positional", "encoder", "name", value="x"), "positional 'x'"),
    damaged(
        "run",
        "option",
        field("config", "positional", "encoder", "options", value={"max_len": -1}),
        "positional 'sinusoidal': max_len: must be greater than or equal to 1",
    ),
    damaged("run", "unknown", field("code", value="x"), "code: Extra inputs are not permitted"),
    damaged("status", "state", field("state", value="FINE"), "state"),
    damaged("status", "no-zone", field("started", value="2026-01-01T00:00:00"), "time zone"),
    damaged("results", "metric-name", field("metrics", "seed", value=3), "metrics.seed"),
    damaged("results", "bucket-score", field("buckets", 0, "scores", "loss", value=-7), "buckets.0.scores"),
    damaged("heads", "effect", field("heads", 0, "only-one", "loss", value="x"), "heads.0.only-one.loss"),
    damaged("probes", "null", field(0, value=None), "0: Input should be"),
    damaged("probes", "other-length", field(0, "source_tokens", value=["a"]), "expected F32", command=REPORT),
    damaged("maps", "torn", cut, "maps.safetensors", "not a readable safetensors file"),
    damaged("maps", "not-a-number", tensors(encoder=lambda a: a * np.nan), "encoder", "not finite"),
    damaged("maps", "role", lambda path: rename(path, "0/cross", "0/across"), "'0/across' is of no role"),
    damaged("maps", "absurd", header(shape=[2**40, 2**20]), "not a readable safetensors file"),
    damaged("translations", "columns", content(b"a\nb\n"), "line 2: expected source, references"),
    damaged("translations", "fifo", fifo, "translations.tsv", NO_FILE),
    damaged("metrics", "fifo", fifo, "metrics.jsonl", NO_FILE),
    damaged("checkpoint", "torn", cut, "checkpoint.safetensors", "is damaged"),
    damaged("checkpoint", "not-a-number", weights(lambda a: a * float("nan")), "not finite"),
    damaged("checkpoint", "shape", weights(lambda a: torch.zeros(3, 3, 3)), "does not match the configuration"),
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
    damaged("stack", "config", field("configs", "sinusoidal", "model", "d_ff", value="x"), "d_ff: Input should be a"),
    damaged("stack", "outside", field("members", 0, "directory", value="/etc"), "not a path inside"),
    damaged("lease", "fifo", new_fifo, NO_FILE),
]


def twice(path: Path, name: str) -> None:
    record = json.loads(path.read_text("utf-8"))
    record[name].append(record[name][0])
    path.write_text(json.dumps(record), encoding="utf-8")


def rename(path: Path, old: str, new: str) -> None:
    arrays = dict(load_file(path))
    arrays[new] = arrays.pop(old)
    save_file(arrays, path)


def state(path: Path, text: bytes) -> None:
    from safetensors.torch import load_file

    save_torch(load_file(path), path, metadata={"state": text.decode()})


def file_of(study: SmallStudy, record: str) -> Path:
    return study.experiment / FILES[record].format(run=study.run_name, stack=study.stack.name)


@pytest.mark.usefixtures("without_figures")
def test_a_damaged_record_gives_one_line(case: Case, small_study: SmallStudy, tmp_path: Path, refusal: Refusal) -> None:
    study = small_study.copy(tmp_path)
    case.damage(file_of(study, case.record))
    if case.record != "status":
        study.recompute_checksums()
    if case.record == "lease":
        study.change(study.run / "status.json", lambda status: status | {"state": "RUNNING"})
    line = refusal(study.call(*(case.command or READER[case.record])))
    for fact in case.facts:
        assert fact in line


@pytest.mark.parametrize("damage", [content(NESTED), content(b'{"pid": -1}')])
def test_a_damaged_lease_is_no_lease(small_study: SmallStudy, tmp_path: Path, damage: Damage) -> None:
    study = small_study.copy(tmp_path)
    study.change(study.run / "status.json", lambda status: status | {"state": "RUNNING"})
    lease = file_of(study, "lease")
    lease.parent.mkdir(exist_ok=True)
    damage(lease)
    done: CompletedProcess[str] = study.call(*STATUS)
    assert done.returncode == 0
    assert "1 INTERRUPTED" in done.stdout


def test_the_undamaged_study_is_accepted(small_study: SmallStudy, tmp_path: Path) -> None:
    study = small_study.copy(tmp_path)
    for command in (STATUS, TRANSLATE, ABLATE, ("plan", "small.yaml")):
        done = study.call(*command)
        assert (done.returncode, done.stderr) == (0, ""), command


# --- random records ---

REPORT_PARTLY, PLAN, SYNC = (*REPORT, "--allow-partial"), ("plan", "small.yaml"), ("sync", "small")
ABLATE_AGAIN, TRACE = (*ABLATE, "--fresh", "--no-decode"), ("trace", "RUN", "the cat", "--target", "le chat")

READERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "experiment": (STATUS, REPORT_PARTLY, PLAN, ABLATE, RUN_AGAIN, SYNC),
    "run": (TRANSLATE, REPORT_PARTLY, PLAN, STATUS, TRACE, ABLATE_AGAIN, RUN_AGAIN, SYNC),
    "status": (STATUS, REPORT_PARTLY, PLAN, TRANSLATE, RUN_AGAIN, SYNC),
    "results": (REPORT_PARTLY, STATUS, PLAN, RUN_AGAIN, SYNC),
    "heads": (ABLATE, REPORT_PARTLY, SYNC),
    "probes": (REPORT_PARTLY, ABLATE_AGAIN, SYNC),
    "metrics": (REPORT_PARTLY, STATUS, SYNC),
    "translations": (REPORT_PARTLY, SYNC),
    "vocabulary": (TRANSLATE, SYNC),
    "maps": (REPORT_PARTLY, SYNC),
    "checkpoint": (TRANSLATE, TRACE, SYNC),
    "stack": (PLAN, RUN_AGAIN),
    "lease": (STATUS, REPORT_PARTLY, ABLATE_AGAIN),
}
"""By record: commands that read it. The default tier calls the first."""

LEASE = {"token": "a" * 32, "pid": 1, "host": "h", "boot": "b"}

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 0, 10**9, 10**18, 10**30, 10**400])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "\0", "\ud800", "../../etc", "/etc", "2026-99-99", "=1", "[red]x", "a\nb"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every field, of lists only the first two entries."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:2]):
            yield from paths(inner, (*path, index))


@st.composite
def mutated(draw: st.DrawFn, record: Any) -> Any:
    """Replace, remove or add a field."""
    changed = copy.deepcopy(record)
    path = draw(st.sampled_from(list(paths(record))))
    if not path:
        return draw(VALUES)
    inner = changed
    for part in path[:-1]:
        inner = inner[part]
    kind = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
    if kind == "remove":
        del inner[path[-1]]
    elif kind == "add" and isinstance(inner, dict):
        inner[draw(st.text(max_size=5))] = draw(VALUES)
    else:
        inner[path[-1]] = draw(VALUES)
    return changed


@st.composite
def bitten(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace, cut or repeat bytes."""
    place = draw(st.integers(0, max(0, len(content) - 1)))
    kind = draw(st.sampled_from(["replace", "cut", "repeat"]))
    if kind == "cut":
        return content[:place]
    if kind == "repeat":
        return content + content[place:]
    new = draw(st.binary(min_size=1, max_size=4))
    return content[:place] + new + content[place + len(new) :]


def contents(original: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy for the content of a file: mutated if it is JSON, by lines or as a whole, else damaged."""
    try:
        record = json.loads(original)
    except ValueError:
        lines = original.splitlines()
        if lines and lines[0].startswith(b"{"):
            return st.builds(
                lambda line: b"\n".join([line, *lines[1:]]) + b"\n", mutated(json.loads(lines[0])).map(_dump)
            ) | bitten(original)
        return bitten(original)
    return mutated(record).map(_dump) | bitten(original)


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


@pytest.fixture
def attack(
    small_study: SmallStudy, no_figures: Callable[[], AbstractContextManager[None]], request: pytest.FixtureRequest
) -> Callable[..., None]:
    """Write a content into a record of a copy of the study, call commands, and check how they end."""

    def check(record: str, content: bytes, commands: tuple[tuple[str, ...], ...]) -> None:
        with tempfile.TemporaryDirectory() as folder, no_figures():
            study = small_study.copy(Path(folder))
            if SYNC in commands:
                shutil.copyfile(request.getfixturevalue("store_template"), study.folder / "mlflow.db")
            path = file_of(study, record)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            if record == "lease":
                study.change(study.run / "status.json", lambda status: status | {"state": "RUNNING"})
            elif record != "status":
                study.recompute_checksums()
            for command in commands:
                done = study.call(*command)
                lines = done.stderr.splitlines()
                assert done.returncode in (0, 1, 2), (command, done.stderr)
                assert "Traceback" not in done.stdout + done.stderr, (command, done.stderr)
                if done.returncode == 2:
                    assert lines[-1].startswith("h2h: "), (command, done.stderr)
                    assert command == RUN_AGAIN or len(lines) == 1, (command, done.stderr)

    return check


def original(study: SmallStudy, record: str) -> bytes:
    if record == "lease":
        return json.dumps(LEASE).encode()
    return file_of(study, record).read_bytes()


EXAMPLES = settings(
    derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None
)


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("record", READERS)
@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["two", "many"])
def test_a_random_record_gives_at_most_one_line(
    record: str, many: bool, small_study: SmallStudy, attack: Callable[..., None]
) -> None:
    """Other examples in every run of the slow tier."""
    commands = READERS[record] if many else READERS[record][:1]

    @settings(EXAMPLES, max_examples=6 if many else 2, derandomize=not many)
    @given(contents(original(small_study, record)))
    def check(content: bytes) -> None:
        attack(record, content, commands)

    check()

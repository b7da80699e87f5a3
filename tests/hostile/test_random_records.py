"""Random and mutated records: every command ends with exit code 0, 1 or 2 and at most one error line."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from .conftest import SmallStudy

STATUS, REPORT, PLAN = ("status", "small"), ("report", "small", "--allow-partial"), ("plan", "small.yaml")
TRANSLATE, ABLATE = ("translate", "RUN", "the cat"), ("ablate-heads", "RUN")
ABLATE_AGAIN = (*ABLATE, "--fresh", "--no-decode")
TRACE = ("trace", "RUN", "the cat", "--target", "le chat")
RUN_AGAIN = ("run", "small.yaml", "--no-tracking", "--workers", "1")
SYNC = ("sync", "small")

READERS: Mapping[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "experiment": ("experiment.json", (STATUS, REPORT, PLAN, ABLATE, RUN_AGAIN, SYNC)),
    "run": ("{run}/run.json", (TRANSLATE, REPORT, PLAN, STATUS, TRACE, ABLATE_AGAIN, RUN_AGAIN, SYNC)),
    "status": ("{run}/status.json", (STATUS, REPORT, PLAN, TRANSLATE, RUN_AGAIN, SYNC)),
    "results": ("{run}/results.json", (REPORT, STATUS, PLAN, RUN_AGAIN, SYNC)),
    "heads": ("{run}/heads.json", (ABLATE, REPORT, SYNC)),
    "probes": ("{run}/attention/probes.json", (REPORT, ABLATE_AGAIN, SYNC)),
    "metrics": ("{run}/metrics.jsonl", (REPORT, STATUS, SYNC)),
    "translations": ("{run}/translations.tsv", (REPORT, SYNC)),
    "vocabulary": ("{run}/vocabulary.json", (TRANSLATE, SYNC)),
    "maps": ("{run}/attention/maps.safetensors", (REPORT, SYNC)),
    "checkpoint": ("{run}/checkpoint.safetensors", (TRANSLATE, TRACE, SYNC)),
    "stack": (".stacks/{stack}/stack.json", (PLAN, RUN_AGAIN)),
    "lease": (".leases/{run}.json", (STATUS, REPORT, ABLATE_AGAIN)),
}
"""By record: its file, and commands that read it. The default tier calls the first."""

LEASE = {"token": "a", "pid": 1, "host": "h", "boot": "b", "namespace": "n", "started": 1.0}

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
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
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
            ) | damaged(original)
        return damaged(original)
    return mutated(record).map(_dump) | damaged(original)


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
            path = study.experiment / READERS[record][0].format(run=study.run_name, stack=study.stack.name)
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
    return (study.experiment / READERS[record][0].format(run=study.run_name, stack=study.stack.name)).read_bytes()


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
    commands = READERS[record][1] if many else READERS[record][1][:1]

    @settings(EXAMPLES, max_examples=6 if many else 2, derandomize=not many)
    @given(contents(original(small_study, record)))
    def check(content: bytes) -> None:
        attack(record, content, commands)

    check()

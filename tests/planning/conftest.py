"""What the tests of the experiment room share: the registry, files, and small prepared data."""

import textwrap
from pathlib import Path

import pytest

from headtohead.config.loading import load_text
from headtohead.planning.design import expand
from headtohead.planning.planner import make_plan
from headtohead.plugins.registry import current

SMALL = """
question: q
base:
  data: {dataset: toy-grammar, size: 400}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16, dropout: 0}
  train: {epochs: 1, batch_tokens: 256}
"""


@pytest.fixture(scope="session")
def registry():
    return current()


@pytest.fixture
def load(tmp_path):
    """Load the text of an experiment file as ``x.yaml``."""

    def load(text, *overrides, seeds=None, **options):
        return load_text(textwrap.dedent(text), Path("x.yaml"), overrides, seeds, **options)

    return load


@pytest.fixture
def design(load, registry):
    """Expand a design over the small base."""

    def design(text, *overrides, base=SMALL, seeds=None, **options):
        loaded = load(base + textwrap.dedent(text), *overrides, seeds=seeds)
        return expand(loaded, **options)

    return design


@pytest.fixture
def plan(load, registry, cache, tmp_path):
    """Plan a design over the small base, with runs in the test's own folder."""

    def plan(text="", *overrides, base=SMALL, seeds=None, label=None, **options):
        loaded = load(base + textwrap.dedent(text), *overrides, seeds=seeds, label=label)
        return make_plan(loaded, tmp_path / "runs", cache, **options)

    return plan


@pytest.fixture
def record():
    """Write the directory of a planned run, as training would leave it.

    A run that is LEASED or RUNNING is leased by this process, unless it is ``gone``.
    """
    import json
    from contextlib import ExitStack

    from headtohead.planning.record import run_record
    from headtohead.storage.leases import Lease
    from headtohead.storage.run_directory import checksums

    def record(
        plan, run, state="DONE", metrics=None, experiment=None, changes=None, gone=False, **status
    ):
        folder = plan.runs_root / (experiment or plan.name) / run.directory
        folder.mkdir(parents=True)
        execution = {
            "stack": [run.run_hash],
            "member": 0,
            "threads": 1,
            "device": "cpu",
            "dtype": "float32",
        }
        content = run_record(plan, run).to_json() | {"execution": execution} | (changes or {})
        (folder / "run.json").write_text(json.dumps(content, indent=1) + "\n")
        (folder / "status.json").write_text(json.dumps({"state": state} | status))
        if state in ("LEASED", "RUNNING") and not gone:
            leases.enter_context(Lease(folder))
        if metrics is not None or state == "DONE":
            results = {
                "buckets": [],
                "signatures": {},
                "best_step": None,
                "stopped_early": False,
                "notes": [],
            }
            (folder / "results.json").write_text(json.dumps({"metrics": metrics or {}} | results))
            (folder / "status.json").write_text(
                json.dumps({"state": state, "files": checksums(folder)} | status)
            )
        return folder

    with ExitStack() as leases:
        yield record

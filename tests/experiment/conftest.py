"""What the tests of the experiment room share: the registry, files, and small prepared data."""

import textwrap

import pytest

from headtohead import plugins
from headtohead.experiment.design import expand
from headtohead.experiment.loading import load_text
from headtohead.experiment.plan import make_plan

SMALL = """
question: q
base:
  data: {dataset: toy-grammar, size: 400}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16, dropout: 0}
  train: {epochs: 1, batch_tokens: 256}
"""


@pytest.fixture(scope="session")
def registry():
    return plugins.current()


@pytest.fixture
def load(tmp_path):
    """Load the text of an experiment file as ``x.yaml``."""

    def load(text, *overrides, seeds=None):
        from pathlib import Path

        return load_text(textwrap.dedent(text), Path("x.yaml"), overrides, seeds)

    return load


@pytest.fixture
def design(load, registry):
    """Expand a design over the small base."""

    def design(text, *overrides, seeds=None):
        return expand(load(SMALL + textwrap.dedent(text), *overrides, seeds=seeds), registry)

    return design


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def plan(load, registry, cache, tmp_path):
    """Plan a design over the small base, with runs in the test's own folder."""

    def plan(text="", *overrides, seeds=None, **options):
        loaded = load(SMALL + textwrap.dedent(text), *overrides, seeds=seeds)
        return make_plan(loaded, registry, tmp_path / "runs", cache, **options)

    return plan

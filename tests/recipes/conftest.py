"""Fixtures of recipe tests: the models of the notebooks in plain torch, and the command line."""

import importlib
import os
from itertools import count

import pytest
import torch

import headtohead
from headtohead_notebooks import import_checkpoint


@pytest.fixture(scope="session")
def notebooks():
    """The module with the models of the notebooks."""
    return importlib.import_module("recipes.notebooks")


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2H_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def h2h(tmp_path, monkeypatch, h2h_here):
    """Run a command in a temporary folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        done = h2h_here(tmp_path, *map(str, arguments), H2H_CACHE=os.environ["H2H_CACHE"])
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def saved(tmp_path):
    """Save the weights of a model as its notebook does, and return the path."""

    def save(model, name="weights.pt"):
        torch.save(model.state_dict(), tmp_path / name)
        return tmp_path / name

    return save


@pytest.fixture
def imported(saved, tmp_path):
    """Import a model in this process and load it."""
    names = map(str, count())

    def run(recipe, model, *overrides, data=None):
        options = {"recipe": recipe, "name": next(names), "overrides": overrides, "data": data}
        return headtohead.load(import_checkpoint(saved(model), **options, runs=tmp_path / "runs"))

    return run

"""Fixtures of recipe tests: the models of the notebooks in plain torch, and the command line."""

import importlib
from itertools import count

import pytest
import torch
from click.testing import CliRunner

import headtohead
from headtohead.cli import main
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
def h2h(tmp_path, monkeypatch):
    """Run a command in a temporary folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

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

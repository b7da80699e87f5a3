"""A package written by ``h2h new-plugin`` can be installed, listed, tested and planned without changes."""

from __future__ import annotations

import re

import pytest
import yaml

from headtohead.plugins.template import TEMPLATE_FAMILIES

pytestmark = pytest.mark.timeout(300)
MODEL = ("positional", "attention", "masking")


@pytest.fixture(scope="module")
def tested(installation):
    """The output of pytest in the folder of each family's package."""
    return installation.each(dict.fromkeys(TEMPLATE_FAMILIES, ("pytest", "-q", "-p", "no:cacheprovider")))


@pytest.mark.slow
@pytest.mark.parametrize("family", TEMPLATE_FAMILIES)
def test_the_tests_of_each_package_pass(tested, family: str) -> None:
    done = tested[family]
    assert done.returncode == 0, done.stdout
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout
    assert int(passed.group(1)) >= (8 if family == "dataset" else 20)


@pytest.mark.slow
def test_the_experiments_of_the_packages_can_be_planned(installation) -> None:
    words = ("plan", "experiment.yaml", "--set", "data.limit=300")
    for family, done in installation.each(dict.fromkeys(TEMPLATE_FAMILIES, words)).items():
        assert done.returncode == 0, done.stderr
        assert f"my-{family}" in done.stdout
        assert "to run in " in done.stdout, done.stdout


@pytest.mark.slow
def test_the_entries_train(installation) -> None:
    small = ["data.limit=300", "train.epochs=1", "evaluate.test_limit=10", "evaluate.unpadded=false"]
    sets = [word for override in small for word in ("--set", override)]
    words = ("run", "experiment.yaml", "--seeds", "1", "--no-tracking", *sets)
    for family, done in installation.each(dict.fromkeys(MODEL, words)).items():
        assert done.returncode == 0, done.stderr
        page = installation.packages[family] / "reports" / "experiment" / "index.html"
        assert f"my-{family}" in page.read_text("utf-8")


@pytest.mark.parametrize("family", TEMPLATE_FAMILIES)
def test_no_file_has_an_unfilled_placeholder(packages, family: str) -> None:
    for path in packages[family].iterdir():
        if path.is_file():
            text = path.read_text("utf-8")
            assert "$" not in text, path
            assert "my-idea" not in text, path
            assert "MyIdea" not in text, path
    content = (packages[family] / "experiment.yaml").read_text("utf-8")
    assert yaml.safe_load(content)["question"].endswith("?")

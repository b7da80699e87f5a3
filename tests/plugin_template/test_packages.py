"""A package written by ``h2h new-plugin`` can be installed, tested, planned and trained without changes."""

import re

import pytest
import yaml

from headtohead.plugins.template import TEMPLATES


@pytest.mark.slow
def test_the_tests_of_each_package_pass_its_experiment_can_be_planned_and_an_entry_trains(
    each, packages
) -> None:
    """Tests that train stacks are run for one package; they take as long as all others."""
    test = ("pytest", "-q", "-p", "no:cacheprovider")
    fewer = (*test, "-k", "not stacking and not resume")
    plan = ("plan", "experiment.yaml", "--set", "data.limit=300")
    small = [
        "data.limit=300",
        "train.epochs=1",
        "evaluate.test_limit=10",
        "evaluate.unpadded=false",
    ]
    run = (
        "run",
        "experiment.yaml",
        "--seeds",
        "1",
        "--no-tracking",
        *(f"--set={override}" for override in small),
    )
    tests = [(family, test if family == "positional" else fewer) for family in TEMPLATES]
    results = each([*tests, *((family, plan) for family in TEMPLATES), ("masking", run)])
    for family, (code, printed, _) in zip(TEMPLATES, results, strict=False):
        assert code == 0, printed
        passed = re.search(r"^(\d+) passed", printed, re.MULTILINE)
        assert passed is not None, printed
        assert int(passed.group(1)) >= (7 if family == "dataset" else 20)
    for family, (code, printed, error) in zip(TEMPLATES, results[len(TEMPLATES) :], strict=False):
        assert code == 0, error
        assert packages[family].name in printed
    code, _, error = results[-1]
    assert code == 0, error
    page = packages["masking"] / "reports" / "experiment" / "index.html"
    assert "my-masking" in page.read_text("utf-8")


@pytest.mark.parametrize("family", TEMPLATES)
def test_no_file_has_an_unfilled_placeholder(packages, family: str) -> None:
    for path in packages[family].glob("*.*"):
        assert not re.search(r"\$|my-idea|MyIdea", path.read_text("utf-8")), path
    content = (packages[family] / "experiment.yaml").read_text("utf-8")
    assert yaml.safe_load(content)["question"].endswith("?")


@pytest.mark.parametrize("family", TEMPLATES)
def test_reports_call_a_new_plugin_by_its_name_and_not_like_the_copied_entry(
    packages, family: str
) -> None:
    (plugin,) = packages[family].glob("h2h_*.py")
    assert "phrase" not in plugin.read_text("utf-8")

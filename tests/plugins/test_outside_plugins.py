"""The steps of docs/how-to/own-plugin.md, and every way to load external plugins."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from headtohead.cli import main
from headtohead.planning.schedule import decays_to_an_end, learning_rate
from headtohead.plugin import Options, Positional
from headtohead.plugins.reads import declared_paths
from headtohead.plugins.registry import current
from headtohead.testing import Subject, check, tiny_config
from made import separate_registry, unexpected
from made.equality import same_function

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "own-plugin.md"

SMALL = """
question: Does the outside encoding train?
base:
  data: {dataset: toy-grammar, limit: 300}
  model: {d_model: 16, heads: 2, layers: 2, d_ff: 16, dropout: 0.0}
  train: {steps: 20, batch_tokens: 256, lr: 1.0e-2}
  evaluate: {unpadded: false, test_limit: 10, max_length: 8}
baseline: {positional: tisa, attention: split-heads, masking: padding-causal}
seeds: 1
"""


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


PLUGIN, CONTRACT, PYTHON_USE, STYLE, NETWORK, SCHEDULE, QUIRK, READS = blocks("python")
(PYPROJECT,) = blocks("toml")
(MISTAKE,) = blocks("diff")
(EXPECTED_OUTPUT,) = blocks("text")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "h2h_tisa.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "tisa.yaml").write_text(SMALL, encoding="utf-8")
    return tmp_path


def call(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=os.environ | {"H2H_CACHE": str(folder / "cache")} | environment,
    )


@pytest.mark.usefixtures("own_registry")
def test_the_bias_of_the_example_equals_its_equation() -> None:
    current().add_file(Path("h2h_tisa.py"), PLUGIN.encode())
    part: Any = Subject(tiny_config({"name": "tisa", "bumps": 4})).positional("decoder")
    queries, keys = torch.tensor([[4, 5]]), torch.tensor([[0, 1, 2, 3, 4, 5, 6]])

    bias = part.bias(queries, keys, "decoder", 1)

    assert bias.shape == (2, 1, 4, 2, 7)
    for member in range(2):
        for head in range(4):
            a, b, c = (
                numbers[member, 1, head].tolist()
                for numbers in (part.height, part.narrowness, part.centre)
            )
            for row, i in enumerate((4, 5)):
                for column, j in enumerate(range(7)):
                    expected = sum(
                        a[s] * math.exp(-abs(b[s]) * (j - i - c[s]) ** 2) for s in range(4)
                    )
                    assert bias[member, 0, head, row, column].item() == pytest.approx(expected)


@pytest.mark.usefixtures("own_registry")
def test_the_attention_style_of_the_page_is_the_built_in_gate_per_head() -> None:
    registry = current()
    registry.add_file(Path("h2h_gate.py"), STYLE.encode())
    gated = tiny_config(attention={"name": "gated", "per": "head"})

    def rename(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name.replace("style.weight", "style.gate"): x for name, x in weights.items()}

    assert same_function(tiny_config(attention="head-gate"), gated, rename)


@pytest.mark.slow
@pytest.mark.usefixtures("own_registry")
def test_the_feed_forward_network_of_the_page_acts_on_each_token_alone() -> None:
    current().add_file(Path("leaky.py"), NETWORK.encode())
    verdicts = check(tiny_config(feed_forward="leaky"))
    assert unexpected(verdicts) == {}
    assert "holds" in {
        verdict.state for key, verdict in verdicts.items() if "tokens-alone" in str(key)
    }


@pytest.mark.usefixtures("own_registry")
def test_the_schedule_of_the_page_falls_to_zero() -> None:
    current().add_file(Path("linear.py"), SCHEDULE.encode())
    train = tiny_config(train={"schedule": "linear", "steps": 100, "warmup_steps": 20}).train
    rates = [learning_rate(train, step, 100) for step in (20, 60, 100)]
    assert rates == pytest.approx([1e-3, 5e-4, 0])
    assert decays_to_an_end(train)


def test_the_sample_of_declared_reads_names_a_file_an_option_and_a_variable() -> None:
    class TableOptions(Options):
        table: str = "table.json"

    namespace: dict[str, Any] = {"Positional": Positional, "__name__": __name__}
    exec(READS, namespace)
    paths = declared_paths(namespace["Scaled"], TableOptions())
    folder = Path(__file__).parent
    assert paths == {
        "scale.json": folder / "scale.json",
        "table.json": folder / "table.json",
        "$SLOPE": None,
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install the package of the page into a folder, and return that folder."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "h2h_tisa.py").write_text(PLUGIN, encoding="utf-8")
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (folder / "README.md").write_text("", encoding="utf-8")
    offline = (
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
    )
    done = call(folder, "-m", "pip", "install", *offline, "--target", "site", ".")
    assert done.returncode == 0, done.stderr
    return str(folder / "site")


@pytest.mark.slow
def test_the_example_passes_the_contract_suite_of_the_page(folder: Path, site: str) -> None:
    (folder / "h2h_tisa.py").unlink()
    (folder / "test_h2h_tisa.py").write_text(CONTRACT, encoding="utf-8")
    quiet = ("-q", "-p", "no:cacheprovider")
    done = call(
        folder, "-m", "pytest", *quiet, "-k", "not stacking", "test_h2h_tisa.py", PYTHONPATH=site
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed.group(1)) >= 15


@pytest.mark.slow
@pytest.mark.usefixtures("fewest")
def test_check_reports_the_planted_mistake_as_the_page_shows(folder: Path) -> None:
    taken, put = (
        "\n".join(line[1:] for line in MISTAKE.splitlines() if line[0] == sign) for sign in "-+"
    )
    assert PLUGIN.count(taken) == 1
    (folder / "h2h_tisa.py").write_text(PLUGIN.replace(taken, put), encoding="utf-8")
    done = CliRunner().invoke(
        main, ["check", "positional/tisa", "--plugin", str(folder / "h2h_tisa.py")]
    )
    assert done.exit_code == 1, done.output
    printed = [without_numbers(line) for line in done.stdout.splitlines()]
    assert [
        line for line in map(without_numbers, EXPECTED_OUTPUT.splitlines()) if line not in printed
    ] == []
    broken = re.findall(r"^(\S+) +broken", done.stdout, re.MULTILINE)
    assert broken == re.findall(r"^(\S+) +broken", EXPECTED_OUTPUT, re.MULTILINE)


def without_numbers(line: str) -> str:
    """Return a line without its numbers and its spaces."""
    return " ".join(re.sub(r"\d[\d.e+-]*", "0", line).split())


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_module_is_registered_from_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = PYTHON_USE.replace('h2h.run("tisa.yaml")', 'h2h.run("tisa.yaml", tracking=False)')
    assert script != PYTHON_USE
    monkeypatch.setenv("H2H_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    with separate_registry():
        exec(script, {"__name__": "__main__"})
    (run,) = (folder / "runs" / "tisa").glob("baseline-s1-*")
    assert json.loads((run / "status.json").read_text("utf-8"))["state"] == "DONE"
    plugins = json.loads((run / "run.json").read_text("utf-8"))["plugins"]
    assert {plugin["distribution"] for plugin in plugins if plugin["name"] == "tisa"} == {"python"}

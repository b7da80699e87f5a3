"""What the pages say is so: experiments plan, plugins and commands work, links and a table of scores are right."""

import csv
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import click
import pytest
import yaml
from click.testing import CliRunner

from headtohead import HeadToHeadError
from headtohead.cli import main
from headtohead.config.loading import load_file, load_text
from headtohead.planning.design import expand
from headtohead.planning.planner import make_plan
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import Registry, current, use_files
from headtohead.schema.experiment_file import DesignBlock, ExperimentFile
from headtohead.testing import INVARIANTS
from made import case_table, separate_registry

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "results.md"]
)
PAGES.append(ROOT / "harness" / "headtohead" / "SKILL.md")
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.yaml"))


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_readme_counts_what_there_is():
    entries = current().entries
    families = {
        "positional": "positional encodings",
        "attention": "attention styles",
        "masking": "masks",
    }
    counts = {
        name: len(entries[family]) for family, name in (families | {"dataset": "datasets"}).items()
    }
    zoo, _ = text_of("docs/internals/zoo.md").split("## Plugin files")
    counts |= {
        "invariants": len(INVARIANTS),
        "planted faults": len(re.findall(r"(?m)^\| `", zoo)),
    }
    assert [
        f"{count} {name}"
        for name, count in counts.items()
        if f"{count} {name}" not in text_of("README.md")
    ] == []


def test_the_page_of_checked_components_has_every_entry_with_every_invariant():
    text, entries = text_of("docs/reference/checked.md"), current().entries
    names = [name for family in (*COMPONENTS, "recipe") for name in entries[family]]
    assert sorted(re.findall(r"(?m)^\| `(\S+)` \| \d", text)) == sorted(names)
    assert f"Of {len(names) * len(INVARIANTS):,} outcomes, 0 are unexpected violations." in text


@pytest.mark.slow
def test_the_outcomes_of_the_page_are_those_of_the_command():
    name = "positional/sinusoidal-by-row"  # its row has known violations
    found = CliRunner().invoke(main, ["check", name, "--format", "json"])
    command = [sys.executable, str(ROOT / "docs" / "generator" / "checked.py")]
    page = run(command, input=found.stdout, capture_output=True, text=True, check=True).stdout
    (row,) = re.findall(r"(?m)^\| `.*$", page)
    assert row in text_of("docs/reference/checked.md").splitlines()


def blocks(page: str, *kinds: str) -> list[str]:
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text_of(page), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(body) for _, kind, body in found if kind in kinds]


def samples() -> list[tuple[str, str]]:
    """Return every YAML block that is a whole experiment file; test_contributing.py runs that of CONTRIBUTING.md."""
    return [
        (page, body)
        for page in NAMES
        if page != "CONTRIBUTING.md"
        for body in blocks(page, "yaml", "yml")
        if isinstance(value := yaml.safe_load(body), dict) and "question" in value
    ]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Built-ins, and the plugin that docs/how-to/own-plugin.md writes."""
    path = tmp_path_factory.mktemp("plugins") / "h2h_tisa.py"
    path.write_text(blocks("docs/how-to/own-plugin.md", "python")[0], encoding="utf-8")
    with separate_registry():
        yield use_files([path])


@case_table(("page", "body"), samples(), ids=lambda value: str(value)[:40], default=1)
def test_a_sample_experiment_plans(
    page: str,
    body: str,
    registry: Registry,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = yaml.safe_load(body)
    small = {"data.dataset": "toy-grammar", "data.limit": 300}
    if content["base"]["data"].get("dataset") != "toy-grammar":
        # The file's own data may not be here; what is left is planned on sentences that are.
        content["base"]["data"] = {}
    plan = make_plan(
        load_text(
            yaml.safe_dump(content),
            tmp_path / "sample.yaml",
            [f"{path}={value}" for path, value in small.items()],
        ),
        tmp_path / "runs",
        cache,
    )
    assert len(plan.variants) >= 2
    assert plan.remaining
    # As it stands, with its own data section, the file is one that the schema takes.
    assert isinstance(load_text(body, tmp_path / "sample.yaml").file, ExperimentFile)


@pytest.mark.parametrize(
    ("sample", "shown", "name", "right", "wrong"),
    [
        (
            "README.md",
            "docs/how-to/troubleshooting.md",
            "positions.yaml",
            "[rotary, none]",
            "[rotory, none]",
        ),
        ("docs/tutorial.md", "docs/tutorial.md", "order.yaml", "[rotary,", "[rotory,"),
    ],
)
def test_a_mistake_in_a_sample_gives_the_error_that_the_page_shows(
    registry: Registry, sample: str, shown: str, name: str, right: str, wrong: str
) -> None:
    (body,) = (body for page, body in samples() if page == sample)
    (line,) = (line for block in blocks(shown, "text") for line in block.splitlines()
               if line.startswith(f"h2h: {name}"))  # fmt: skip
    assert body.count(right) == 1
    with pytest.raises(HeadToHeadError) as caught:
        expand(load_text(body.replace(right, wrong), Path(name)))
    assert f"h2h: {caught.value}" == line


def test_pages_hold_sample_experiments() -> None:
    assert "docs/how-to/own-plugin.md" in {page for page, _ in samples()}
    designs = [
        yaml.safe_load(body)
        for page, body in samples()
        if page == "docs/how-to/design-an-experiment.md"
    ]
    assert {key for content in designs for block in content["design"] for key in block} == set(
        DesignBlock.model_fields
    )
    assert any("contrasts" in content for content in designs)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_of_the_repository_has_a_valid_design(path: Path, registry: Registry) -> None:
    loaded = load_file(path)
    assert loaded.file.question.endswith("?")
    assert expand(loaded).variants


@pytest.mark.parametrize(
    "page", [page for page in NAMES if page not in ("docs/reference/cli.md", "CHANGELOG.md")]
)
def test_every_command_that_a_page_names_exists_with_its_options(page: str) -> None:
    """Commands are lines of shell blocks and pieces of inline code."""
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL))
    for line in [*inline, *"\n".join(blocks(page, "sh", "console", "bash")).splitlines()]:
        match = re.match(r"^(?:\$ )?(?:\S*/)?h2h (.+?)(?: #.*)?$", line.strip())
        words = shlex.split(match.group(1)) if match else []
        command: click.Command | None = main
        for word in words if words and not words[0].startswith("-") else ():
            if isinstance(command, click.Group) and not word.startswith("-"):
                command = command.get_command(click.Context(command), word.split("|")[0])
                assert command is not None, line
        assert command is not None
        known = {"-h", "--help", "--version"} | {
            name for one in command.params for name in (*one.opts, *one.secondary_opts)
        }
        given = {word.split("=")[0] for word in words if word.startswith("-") and word != "-"}
        assert given <= known | {"-h", "--help", "--version"}, line


def anchor(heading: str) -> str:
    """Return the anchor that Markdown readers on the web give a heading."""
    plain = re.sub(r"[`*\[\]]", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    body = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", body, re.MULTILINE)}


@pytest.mark.parametrize("page", NAMES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`(?!\])", "", text_of(page))):
        if not re.match(r"[a-z]+:", target):
            path, _, fragment = target.partition("#")
            file = (ROOT / page).parent / path if path else ROOT / page
            assert file.exists(), target
            assert not fragment or fragment in anchors(file), target


def test_the_navigation_of_the_site_has_every_page() -> None:
    nav = text_of("mkdocs.yml").partition("\nnav:\n")[2]
    listed = re.findall(r"\S+\.md$", nav, re.MULTILINE)
    pages = [name.removeprefix("docs/") for name in NAMES if name.startswith("docs/")]
    linked = {
        f"results/{name}"
        for name in re.findall(r"\]\(([\w-]+\.md)\)", text_of("docs/results/README.md"))
    }
    assert {*listed} | linked == {*pages}


def test_no_page_names_a_path_of_a_machine() -> None:
    for page in NAMES:
        assert not re.search(r"(?<![\w.~])/(root|home|Users|work|tmp)/", text_of(page)), page


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_names_no_file_outside_the_project(path: Path) -> None:
    names = re.findall(
        r"^\s*(?:- )?(?:data\.)?file: *(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [
        name
        for name in names
        if not Path(os.path.normpath(path.parent / name)).is_relative_to(ROOT)
    ] == []


def test_the_api_page_has_every_public_name() -> None:
    import headtohead
    from headtohead import plugin, testing

    public = {f"headtohead.{name}" for name in headtohead.__all__}
    public |= {
        f"headtohead.plugin.{name}" for name in set(plugin.__all__) - set(headtohead.__all__)
    }
    public |= {f"headtohead.testing.{name}" for name in testing.__all__}
    listed = re.findall(r"^### (\S+)$", text_of("docs/reference/api.md"), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert public <= set(listed)
    assert {name for name in listed if name.count(".") == 1} <= public


def spaced(text: str) -> list[str]:
    """Return the lines of a text, every run of spaces being one space."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_plan_of_the_tutorial_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "cache"))
    (tmp_path / "order.yaml").write_text(blocks("docs/tutorial.md", "yaml")[0], encoding="utf-8")
    shown = spaced(blocks("docs/tutorial.md", "console")[0])
    assert shown.pop(0) == "$ h2h plan order.yaml"
    planned = CliRunner().invoke(main, ["plan", "order.yaml"])
    assert planned.exit_code == 0, planned.output
    depends_on_the_machine = ("project: ", "time: ", "runs: ")
    expected = [line for line in shown if not line.startswith(depends_on_the_machine)]
    assert [line for line in expected if line not in spaced(planned.output)] == []
    assert len(expected) >= 7


@pytest.mark.slow
@pytest.mark.usefixtures("fewest")
def test_the_plugin_of_the_readme_passes_the_command_of_the_readme_with_every_invariant(
    tmp_path: Path,
) -> None:
    (code,) = blocks("README.md", "python")
    path = tmp_path / "slope.py"
    path.write_text(code, encoding="utf-8")
    arguments = ["check", "positional/trained-slope", "--plugin", str(path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    rows = [line.split(maxsplit=1) for line in done.output.splitlines() if line]
    found = {name: " ".join(rest.split()) for name, *rests in rows for rest in rests}
    assert {invariant.name for invariant in INVARIANTS} <= found.keys()
    assert found["parameter-count"].startswith("holds 0 difference between the closed form and ")
    assert found["source-mirror"].startswith("holds ")
    assert found["batch-of-one"].startswith("holds ")


def test_the_dataset_plugin_of_the_page_reads_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "cache"))
    (code,) = blocks("docs/how-to/own-data.md", "python")
    (phrases,) = blocks("docs/how-to/own-data.md", "text")
    (tmp_path / "phrasebook.py").write_text(code, encoding="utf-8")
    (tmp_path / "phrases.csv").write_text(phrases, encoding="utf-8")
    rows = list(csv.reader(phrases.splitlines()))[1:]
    (tmp_path / "phrases.tsv").write_text(
        "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8"
    )
    plugin = ["phrasebook", "--plugin", "phrasebook.py", "--set", "file=phrases.tsv"]
    table = ["pairs", "--set", "file=phrases.csv", "--set", "columns=[English, French]"]
    for dataset in (plugin, table):
        shown = CliRunner().invoke(
            main, ["data", "stats", *dataset, "--set", "valid=1", "--set", "test=1"]
        )
        assert shown.exit_code == 0, shown.output
        assert "3: train 1, valid 1, test 1" in shown.output

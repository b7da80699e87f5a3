"""h2h card: the component of a plugin file against three others on several tasks, on one page."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cards
import results as pages
from headtohead import api
from headtohead.analysis.study import Analysis
from headtohead.cli import card
from headtohead.config.loading import load_text
from headtohead.planning.design import expand
from headtohead.plugins.template import write_package
from headtohead.report.answer import largest_first
from headtohead.report.card import MAX_SENTENCES
from headtohead.report.card import card as page_of
from headtohead.report.content import Report
from headtohead.report.figures.rows import strip_figure
from headtohead.report.variants import score_section
from headtohead.storage.frames import load_frames
from made import plugin_file, separate_registry
from measured import RESULTS

SLOPE = plugin_file(
    """
    def build(self):
        self.slope = self.parameter(self.context.geometry.heads, mean=0.1, std=0.01)

    def bias(self, query_positions, key_positions, role, layer):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        return -self.slope[:, None, :, None, None] * distance[:, None]
    """,
    name="my-idea",
)


def write(name: str, family: str, *replaced: str) -> Path:
    """Write a plugin file with an entry ``my-idea`` of a family, with a text replaced by another."""
    text = SLOPE
    if family != "positional":
        text = write_package(family, "my-idea", Path(family))[0].read_text(encoding="utf-8")
    Path(name).write_text(text.replace(*replaced) if replaced else text, encoding="utf-8")
    return Path(name)


TASKS = {"copy": "longest: 4, size: 100", "text": "file: card-text.txt, block: 8"}
"""Two small tasks: one that no model learns in a few steps, and a text."""

SMALL = {
    "d_model: 64": "d_model: 8",
    "steps: 600": "steps: 3",
    "steps: 60": "steps: 1",
}


def shrink(plugin: Path) -> None:
    """Write the design of a plugin beside it with a small model and few steps, and the text of its task."""
    name, text = card.experiment_of(plugin)
    for value, small in SMALL.items():
        assert value in text
        text = text.replace(value, small)
    plugin.with_name(f"card-{name}.yaml").write_text(text, encoding="utf-8")
    plugin.with_name("card-text.txt").write_text("to be or not to be, " * 40, encoding="utf-8")


def declared(path: Path, contrasts: Any) -> list[tuple[str, str]]:
    """Check the declared contrasts of a card and return their variants."""
    name = path.stem.removeprefix("card-")
    pairs = [
        (contrast.variant, contrast.against)
        for contrast in contrasts
        if contrast.family == "declared"
    ]
    assert len(pairs) == len({*pairs}) == 15
    assert all(name in variant and name not in against for variant, against in pairs)
    return pairs


def test_the_default_file_has_three_contrasts_on_each_task(h2h) -> None:
    """A slow test shows it for every family."""
    name, text = card.experiment_of(write("idea, new.py", "positional"))
    Path("card-text.txt").write_text("to be or not to be, " * 40, encoding="utf-8")
    loaded = load_text(text, Path(f"card-{name}.yaml"))
    loaded.load_plugins()
    design = expand(loaded)
    assert (len(design.variants), design.excluded) == (20, ())
    declared(Path(f"card-{name}.yaml"), design.contrasts())


@pytest.mark.slow
@pytest.mark.parametrize("family", card.BASELINES)
def test_no_default_task_leaks_its_test_set(h2h, family: str) -> None:
    name, text = card.experiment_of(write("idea, new.py", family))
    path = Path(f"card-{name}.yaml")
    path.write_text(text, encoding="utf-8")
    Path("card-text.txt").write_text(card.english_text(), encoding="utf-8")
    plan = api.plan(path)
    assert [data.record["leak"] for data in plan.prepared.values() if data.record["leaky"]] == []
    assert len(plan.variants) == 20
    declared(path, plan.contrasts)


def test_a_rival_is_called_by_its_name_and_options() -> None:
    names = {name for rivals in card.BASELINES.values() for name in map(card.rival_name, rivals)}
    assert {"window with width 8", "rotary"} <= names
    assert not [name for name in names if set(name) & set("{}:,")]


ENCODINGS = ("my-idea", "rotary", "alibi", "sinusoidal")
EFFECTS = {"my-idea": 0.2, "rotary": 0.0, "alibi": 0.05, "sinusoidal": 0.1}


def made_score(axes: Any, seed: int) -> float:
    """Return a score that depends on the encoding, on two tasks; all are 0 or 1 on two others."""
    if axes["data"] in ("hard", "easy"):
        return float(axes["data"] == "easy")
    noise = np.random.default_rng([seed, *map(ord, axes["positional"] + axes["data"])])
    return 0.4 + EFFECTS[axes["positional"]] + 0.005 * float(noise.normal())


def test_the_page_has_five_sentences_and_the_differences_of_every_task(
    analysed: Callable[..., Analysis],
) -> None:
    tasks = ["copy", "induction", "hard", "easy"]
    contrasts = []
    for task in tasks:
        for other in ENCODINGS[1:]:
            name = card.CLAIM.format(entry="my-idea", rival=other, task=task)
            sides = {"variant": f"my-idea-{task}", "against": f"{other}-{task}"}
            contrasts.append({"name": name, **sides})
    axes = {"positional": list(ENCODINGS), "data": tasks}
    analysis = analysed(axes=axes, declared=contrasts, score=made_score, seeds=(1, 2, 3))
    report = Report(analysis)
    page = page_of(report, "class Own: ...")
    opening, _, _ = page.partition("\nMean ")
    _, answer = opening.split("\n\n")[:2]
    sentences = re.split(r"(?<=\.)(?:\*\*)? ", answer)
    assert len(sentences) == MAX_SENTENCES < len(report.sentences)
    first = largest_first(analysis, analysis.main_contrasts)[0]
    assert first.name == "my-idea instead of rotary on " + first.name.split()[-1]
    assert sentences[0].startswith("**My-idea instead of rotary on ")
    assert "exact match improves, +0.2" in sentences[0]
    assert sentences[-3].startswith("Smaller gains: ")
    assert sentences[-2].startswith("Cannot tell, because all scores are the worst or the best")
    rows = [line for line in page.splitlines() if line.startswith(("| hard |", "| easy |"))]
    rows += [line for line in page.splitlines() if line.count("cannot tell |") == 3]
    assert len(rows) == 2
    assert analysis.families.declared.tested == 6
    assert "class Own" in page
    means = {slug: analysis.summaries[slug].mean for slug in analysis.ranked}
    for other in ENCODINGS[1:]:
        difference = means["my-idea-copy"] - means[f"{other}-copy"]
        assert f"+{difference:.3f} better" in page


@pytest.mark.slow
def test_an_author_goes_from_a_new_plugin_to_a_card_on_the_results_page(
    h2h, monkeypatch: pytest.MonkeyPatch, without_figures: None
) -> None:
    monkeypatch.setattr(card, "TASKS", TASKS)
    assert h2h("new-plugin", "positional", "my-idea")[0] == 0
    (plugin,) = Path("my-idea").glob("h2h_*.py")
    repository = Path("repository")
    for folder in ("experiments", "docs/results"):
        (repository / folder).mkdir(parents=True)
    shutil.copy(RESULTS / "README.md", repository / "docs" / "results")
    plugin = Path(shutil.copy(plugin, repository / "experiments"))
    shrink(plugin)
    page = repository / "docs" / "results" / "my-idea.md"
    root = ("--runs", repository / "runs", "--reports", repository / "reports")
    code, output = h2h("card", plugin, "--seeds", 2, "--output", page, *root)
    assert code == 0, output
    assert "card-my-idea.yaml exists and is used" in output
    assert re.search(r"training 16 runs in \d stacks; time: \d+ s \(rough: ", output)
    assert output.index("; time: ") < output.index("runs done")
    assert_page_has_the_differences_of_the_runs(repository, page)
    analysis = Analysis(load_frames(repository / "runs" / "card-my-idea"), "test/exact_match")
    assert_texts_are_judged_on_loss(Report(analysis))
    monkeypatch.setattr(cards, "ROOT", repository)
    with separate_registry():  # the plugin is not registered where the pages are generated
        pages.write(page.parent, repository / "reports")
    index = (page.parent / "README.md").read_text(encoding="utf-8")
    assert "(my-idea.md): " in index
    for other in card.BASELINES["positional"]:
        assert f"](positional-{other}-my-idea.md) |" in index
        text = (page.parent / f"positional-{other}-my-idea.md").read_text(encoding="utf-8")
        assert "h2h card experiments/h2h_my_idea.py\n" in text
        assert "[my-idea](my-idea.md)" in text
        assert text.count("| cannot tell |") == 1
    assert index.count("exact match: every score is 0.000<br>") == 3


def assert_page_has_the_differences_of_the_runs(repository: Path, page: Path) -> None:
    """The rows of the tasks have the differences of the means, and the page has costs, source and design."""
    text = page.read_text(encoding="utf-8")
    rows = [
        line.strip("| ").split(" | ")
        for line in text.splitlines()
        if line.startswith(("| copy |", "| text ("))
    ]
    assert len(rows) == 2
    assert rows[0][2:] == ["0.000 cannot tell"] * 3
    runs = api.results("card-my-idea", runs=repository / "runs")
    means = runs.groupby(["positional", "data"])["test/loss"].mean()
    (data,) = {data for _, data in means.index if data.startswith("text")}
    expected = []
    for other in card.BASELINES["positional"]:
        expected.append(means["my-idea", data] - means[other, data])
    shown = [float(cell.split()[0].replace("−", "-")) for cell in rows[1][2:]]
    assert any(shown)
    assert shown == pytest.approx(expected, abs=6e-3)
    # The new plugin is a copy of alibi, so that this difference is identical and not counted.
    assert "95 %, adjusted for 2 declared contrasts" in text
    for part in (
        "\nclass MyIdea",
        "FLOPs per token",
        "\nquestion: Is the positional 'my-idea' bet",
    ):
        assert part in text
    answer = json.loads(
        (repository / "reports" / "card-my-idea" / "answer.json").read_text(encoding="utf-8")
    )
    assert answer["answer"].count(": cannot tell") == 3


def assert_texts_are_judged_on_loss(report: Report) -> None:
    """A text has no exact match, and its contrasts are about the loss."""
    frames, section = report.analysis.frames, score_section(report)
    texts = [
        slug for slug, variant in frames.by_slug.items() if variant.config.data.dataset == "text"
    ]
    assert (len(texts), report.analysis.unranked) == (4, {})
    assert set(report.analysis.ranked) == frames.by_slug.keys() - set(texts)
    losses = {report.title(slug): frames.summary(slug, "test/loss").mean for slug in texts}
    rows = [
        row for row in section.frame.to_dict("records") if row["variant"].split("\n")[0] in losses
    ]
    assert [float(row["exact match"].split()[0]) for row in rows] == pytest.approx(
        sorted(losses.values()), abs=6e-3
    )
    for row in rows:
        assert row["variant"].endswith("\njudged on test loss")
        assert row["exact match"].endswith("\ntest loss")
        assert row["seeds"] == "2"
    notes = [text.get_text() for text in strip_figure(report.analysis).axes[0].texts]
    assert sum(note.startswith("test loss ") for note in notes) == 4
    assert "not ranked" not in notes
    reasons = {
        contrast.reason
        for contrast in report.analysis.families.variants.contrasts
        if contrast.variant in texts
    }
    assert reasons == {"judged on test loss"}


@pytest.mark.slow
def test_a_plugin_that_violates_an_invariant_is_refused_before_training(
    h2h, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card, "TASKS", TASKS)
    replaced = ("-self.slope[", "-self.slope.mean(0, keepdim=True)[")
    plugin = write("idea.py", "positional", *replaced)
    shrink(plugin)
    code, output = h2h("card", plugin)
    assert code == 2
    assert "positional/my-idea violates 'members'" in output
    assert not list(Path().rglob("results.json"))
    assert not Path("my-idea.md").exists()


@pytest.mark.parametrize("family", ["dataset", "two"])
def test_a_file_without_a_single_component_is_refused(h2h, family: str) -> None:
    two = ("positional", '{"my-idea": Own}', '{"a": Own, "b": Own}')
    path = write("idea.py", *two) if family == "two" else write("idea.py", family)
    code, output = h2h("card", path)
    assert (code, output.count("\n")) == (2, 1)
    assert "h2h card takes a file with one entry of positional" in output

"""h2h card: the component of a plugin file against three others on several tasks, on one page."""

from pathlib import Path

import pytest

from headtohead import api
from headtohead.analysis.study import Analysis
from headtohead.cli import card
from headtohead.plugins.template import write_package
from headtohead.report.content import Report
from headtohead.report.figures.rows import strip_figure
from headtohead.report.variants import variant_section
from headtohead.storage.frames import load_frames
from made import case_table, plugin_file

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


@case_table("family", card.BASELINES, default=1)
def test_the_default_file_has_three_contrasts_on_each_task(h2h, family: str) -> None:
    name, text = card.experiment_of(write("idea, new.py", family))
    path = Path(f"card-{name}.yaml")
    path.write_text(text, encoding="utf-8")
    Path("card-text.txt").write_text(card.english_text(), encoding="utf-8")
    plan = api.plan(path)
    assert (len(plan.variants), plan.design.excluded) == (20, ())
    assert [data.record["leak"] for data in plan.prepared.values() if data.record["leaky"]] == []
    pairs = [
        (contrast.variant, contrast.against)
        for contrast in plan.contrasts
        if contrast.family == "declared"
    ]
    assert len(pairs) == len({*pairs}) == 15
    assert all(name in variant and name not in against for variant, against in pairs)


def test_the_page_has_the_differences_of_the_runs_the_costs_and_the_source(
    h2h, monkeypatch: pytest.MonkeyPatch, without_figures: None
) -> None:
    monkeypatch.setattr(
        card, "TASKS", {"copy": "longest: 4, size: 100", "text": "file: card-text.txt, block: 8"}
    )
    Path("card-text.txt").write_text("to be or not to be, " * 40, encoding="utf-8")
    plugin = write("idea.py", "positional")
    name, text = card.experiment_of(plugin)
    small = {
        "d_model: 64": "d_model: 8",
        "steps: 600": "steps: 3",
        "steps: 60": "steps: 1",
        "test/exact_match": "test/perplexity",
    }
    for old, new in small.items():
        text = text.replace(old, new)
    text = text.replace("report: [test/loss, valid/loss]", "report: [test/loss]")
    Path(f"card-{name}.yaml").write_text(text, encoding="utf-8")
    code, output = h2h("card", plugin, "--seeds", 2)
    assert code == 0, output
    assert "card-my-idea.yaml exists and is used" in output
    page = Path("my-idea.md").read_text(encoding="utf-8")
    rows = [
        line.strip("| ").split(" | ")
        for line in page.splitlines()
        if line.startswith(("| copy |", "| text ("))
    ]
    assert len(rows) == 2
    for (task, own, *differences), metric in zip(
        rows, ("test/perplexity", "test/loss"), strict=True
    ):
        means, task = (
            api.results("card-my-idea").groupby(["positional", "data"])[metric].mean(),
            task.split()[0],
        )
        (data,) = {data for _, data in means.index if data.startswith(task)}
        expected = [
            means["my-idea", data] - means[other, data] for other in card.BASELINES["positional"]
        ]
        shown = [float(cell.split()[0].replace("−", "-")) for cell in differences]
        assert any(shown)
        assert float(own.split()[0]) == pytest.approx(means["my-idea", data], abs=6e-3)
        assert shown == pytest.approx(expected, abs=6e-3)
    assert "\nclass Own(Positional):\n" in page
    assert "simultaneous 95 % over 6 declared contrasts" in page
    assert "FLOPs per token" in page
    assert "\nquestion: Is the positional 'my-idea' better" in page
    analysis = Analysis(load_frames(Path("runs/card-my-idea")), "test/exact_match")
    assert_texts_are_judged_on_loss(Report(analysis))


def assert_texts_are_judged_on_loss(report: Report) -> None:
    """A text has no exact match, and its contrasts are about the loss."""
    frames, section = report.analysis.frames, variant_section(report)
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
        assert (row["seeds"], row["against baseline"], row["verdict"]) == ("2", "–", "–")
    notes = [text.get_text() for text in strip_figure(report.analysis).axes[0].texts]
    assert sum(note.startswith("test loss ") for note in notes) == 4
    assert "not ranked" not in notes
    reasons = {
        contrast.reason
        for contrast in report.analysis.families.variants.contrasts
        if contrast.variant in texts
    }
    assert reasons == {"judged on test loss"}


def test_a_plugin_that_violates_an_invariant_is_refused_before_training(h2h) -> None:
    code, output = h2h(
        "card", write("idea.py", "positional", "-self.slope[", "-self.slope.mean(0, keepdim=True)[")
    )
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

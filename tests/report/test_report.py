import csv
import html.parser
import json
import re
import subprocess
import sys
import typing
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from headtohead.analysis.study import Analysis
from headtohead.cli import main
from headtohead.errors import HeadToHeadError
from headtohead.figures.style import PALETTE
from headtohead.ownership import claim
from headtohead.report.blocks import (
    AttentionMaps,
    Block,
    BulletList,
    CellNote,
    CodeBlock,
    Column,
    Contents,
    DataTable,
    Definitions,
    Details,
    Heading,
    Link,
    NamedFigure,
    Paragraph,
    Prose,
    SentenceTranslations,
    Span,
    TableCell,
    TableRow,
    TranslationOutput,
    VariantTitle,
    VerdictLabel,
)
from headtohead.report.facts import warnings
from headtohead.report.html import html_page
from headtohead.report.markdown import markdown_page
from headtohead.report.setup import MOST_ENTRIES, setup_line
from headtohead.report.writing import write_report
from headtohead.storage.frames import load_frames

NASTY = '<script>alert("x")</script> | a`b` *c* [d](e) & \\ </style><!-- '
VOID = {"meta", "link", "br", "img", "input", "hr"}
SVG_VOID = {"use", "path", "rect"}


class Page(html.parser.HTMLParser):
    """What a browser would see: elements in order, and text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text += data


@pytest.fixture(scope="module")
def report(quickstart, tmp_path_factory):
    return write_report(quickstart, tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def page(report):
    return Page(report.html.read_text(encoding="utf-8"))


def words(page: Page) -> str:
    return re.sub(r"\s+", " ", page.text)


def test_a_report_is_a_page_a_markdown_file_a_table_and_figures(report):
    names = sorted(str(path.relative_to(report.folder)) for path in report.folder.rglob("*.*"))
    assert names == [
        ".headtohead.jsonl",
        "answer.json",
        "figures/attention.svg",
        "figures/contrasts.svg",
        "figures/cost.svg",
        "figures/curves.svg",
        "figures/interactions.svg",
        "figures/lengths.svg",
        "figures/scores.svg",
        "index.html",
        "report.md",
        "results.csv",
    ]


def test_the_page_is_well_formed_and_asks_no_server_for_anything(report, page):
    assert page.open == []
    for tag, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "action", "data"):
            target = attributes.get(name)
            if target and not target.startswith(("#", "data:")):
                assert (tag, target) == ("a", "results.csv")
    text = report.html.read_text(encoding="utf-8")
    assert not re.search(r"@import|url\((?!#)|url\(['\"]?http", text)
    assert report.html.stat().st_size < 5_000_000


def test_the_answer_stands_before_every_table(page, report):
    text = words(page)
    assert text.index(report.answer) < text.index("Axis by axis") < text.index("Reproduction")
    tags = [tag for tag, _ in page.elements]
    assert tags.index("h1") < tags.index("svg") < tags.index("table")


def test_costs_stand_beside_every_score(page, report):
    tables = re.findall(r"<thead>.*?</thead>", report.html.read_text(encoding="utf-8"), re.DOTALL)
    scores = [head for head in tables if "exact match</th>" in head or "test/bleu" in head]
    plain = [re.sub(r"<[^>]+>", " ", head) for head in scores if "verdict" not in head]
    plain += [re.sub(r"<[^>]+>", " ", head) for head in scores if "Holm" in head and "axis" not in head]
    assert len(plain) == 2
    for head in plain:
        for column in ("parameters", "FLOPs", "tokens", "memory", "time"):
            assert column in head


def test_every_variant_has_its_line_with_mean_interval_and_verdict(page, quickstart):
    text = words(page)
    experiment = json.loads((quickstart / "experiment.json").read_text())
    for variant in experiment["variants"]:
        scores = [
            json.loads((quickstart / run["directory"] / "results.json").read_text())["metrics"]
            for run in experiment["runs"]
            if run["variant"] == variant["slug"]
        ]
        mean = sum(score["test/exact_match"] for score in scores) / 6
        assert f"{variant['title']} {mean:.3f}" in text or f"{variant['title']}{mean:.3f}" in text


def test_batched_and_lonely_scores_stand_side_by_side(page):
    text = words(page)
    assert "With and without padding" in text
    assert "Equal by construction and evaluated once, since the masks hide padding:" in text
    assert "within the upper bound" in text
    assert "All 4 order-invariant variants are within the bag-of-words upper bound of 0.530" in text


def test_maps_travel_inside_the_page_to_a_byte(page, quickstart):
    import base64

    import numpy as np
    from safetensors.numpy import load_file

    maps = json.loads(page.scripts[0])
    assert len(maps["variants"]) == 12
    assert maps["roles"] == ["encoder", "decoder", "cross"]
    found = next(v for v in maps["variants"] if v["title"] == "rotary · split-heads · causal")
    stored = load_file(next(quickstart.glob("rotary-split-heads-causal-s1-*")) / "attention" / "maps.safetensors")[
        "1/decoder"
    ]
    entry = found["probes"][1]["roles"]["decoder"]
    level = np.frombuffer(base64.b64decode(entry["bytes"]), dtype=np.uint8)
    shown = level.reshape(entry["shape"]) / 255 * entry["scale"]
    assert np.abs(shown - stored).max() < 0.5 / 255 + 1e-6


def test_layers_and_heads_are_numbered_from_0_and_each_page_says_so_once(report):
    text = report.html.read_text(encoding="utf-8")
    markdown = report.markdown.read_text(encoding="utf-8")
    chosen = json.loads(Page(text).scripts[0])["open"]
    assert (chosen["layer"], chosen["head"]) < (2, 4)
    for written in (text, markdown):
        assert written.count("Layers and heads are numbered from 0.") == 1
        assert f"layer {chosen['layer']}, head {chosen['head']}" in written
    assert 'word + " " + index;' in text


def test_maps_show_without_scripts(report, quickstart):
    text = report.html.read_text(encoding="utf-8")
    panels = re.search(r'<div class="plot natural">(<svg.*?</svg>)\s*</div>', text, re.DOTALL)[1]
    assert panels.count("<image ") == 12
    texts = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", panels))
    for variant in json.loads((quickstart / "experiment.json").read_text())["variants"]:
        assert f"{variant['title']} (seed 1)" in texts
    assert texts.split().count("chat") == 12


@pytest.mark.slow
def test_samples_are_the_same_sentences_for_every_variant(report, quickstart):
    from headtohead.report.content import ReportContent
    from headtohead.report.translations import samples

    analysis = Analysis(load_frames(quickstart))
    chosen = samples(ReportContent(analysis))
    assert len(chosen) == 8
    for sample in chosen:
        variants = [variant for output in sample.outputs for variant in output.variants]
        assert len(variants) == len(set(variants)) == len(analysis.frames.by_slug)
        assert len({output.hypothesis for output in sample.outputs}) == len(sample.outputs)
        assert any(output.exact for output in sample.outputs)
        assert any(not output.exact for output in sample.outputs)


def test_the_table_of_runs_holds_every_run(report):
    with report.csv.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 72
    assert {row["state"] for row in rows} == {"DONE"}
    assert all(0 < float(row["test/exact_match"]) <= 1 for row in rows)


def test_the_table_of_runs_has_the_verdict_on_each_variant(report, quickstart):
    from headtohead.storage.frames import load_frames

    with report.csv.open(encoding="utf-8", newline="") as file:
        verdicts = {(row["variant"], row["verdict"]) for row in csv.DictReader(file)}
    analysis = Analysis(load_frames(quickstart))
    expected = {(contrast.left, contrast.verdict) for contrast in analysis.variants.contrasts}
    assert verdicts == expected | {(analysis.frames.baseline, "baseline")}
    assert {"worse", "inconclusive"} <= {verdict for _, verdict in verdicts}


def test_markdown_has_the_answer_whole_tables_and_links_to_files(report):
    text = report.markdown.read_text(encoding="utf-8")
    assert report.answer.replace("|", "\\|") in unescape(text).replace("\\", "")
    for linked in re.findall(r"\]\(([^)]+)\)", text):
        assert (report.folder / linked).is_file()
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1, block


def test_figures_are_valid_by_themselves(report):
    for figure in (report.folder / "figures").iterdir():
        ET.fromstring(figure.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def again(quickstart, tmp_path_factory):
    """The same report by the command, where an earlier one has left a picture: folder and words."""

    folder = tmp_path_factory.mktemp("reports") / "quickstart"
    stale = folder / "figures" / "old.svg"
    claim(folder, ["figures/old.svg"])
    stale.parent.mkdir(parents=True)
    stale.write_text("<svg/>")
    runs, reports = str(quickstart.parent), str(folder.parent)
    result = CliRunner().invoke(main, ["report", "quickstart", "--runs", runs, "--reports", reports])
    assert result.exit_code == 0, result.output
    return folder, result.output


@pytest.mark.slow
def test_a_report_written_twice_has_the_same_bytes(report, again):
    folder, _ = again
    for path in report.folder.rglob("*.*"):
        assert path.read_bytes() == (folder / path.relative_to(report.folder)).read_bytes()


@pytest.mark.slow
def test_pictures_of_an_earlier_report_do_not_stay_behind(again):
    folder, _ = again
    assert (folder / "figures" / "scores.svg").is_file()
    assert not (folder / "figures" / "old.svg").exists()


@pytest.mark.slow
def test_text_from_data_never_becomes_markup(made, tmp_path):
    study = made.Study(
        name="nasty",
        seeds=(1, 2),
        axes={"positional": ["sinusoidal", NASTY.replace("/", "")], "attention": ["a", "b"]},
        sentences=[(f"{NASTY}{i}", f"le {NASTY} {i}") for i in range(8)],
        question=NASTY,
        data={"notes": [NASTY], "citation": NASTY, "licence": NASTY},
        excluded=[{"axes": {"positional": NASTY, "attention": "z"}, "slug": "x", "reason": NASTY, "source": "exclude"}],
    )
    folder = made.write_study(tmp_path / "runs", study)
    paths = write_report(folder, tmp_path / "reports")
    page = Page(paths.html.read_text(encoding="utf-8"))
    assert page.open == []
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "alert" not in page.scripts[1]
    assert json.loads(page.scripts[0])["probes"][0].startswith(NASTY)
    assert NASTY in page.text
    for figure in (paths.folder / "figures").iterdir():
        root = ET.fromstring(figure.read_text(encoding="utf-8"))
        assert not [e for e in root.iter() if e.tag.endswith("script")]
    markdown = paths.markdown.read_text(encoding="utf-8")
    assert "<script" not in MarkdownIt("commonmark").render(markdown)  # HTML is on: raw tags would pass
    for block in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


@pytest.fixture(scope="module")
def incomplete(messy, tmp_path_factory, no_figures):
    with no_figures():  # tests/analysis draws those of such a study
        return write_report(messy, tmp_path_factory.mktemp("reports"))


def test_incomplete_variants_are_not_ranked_and_the_page_says_so_first(incomplete):
    text = words(Page(incomplete.html.read_text(encoding="utf-8")))
    assert "Incomplete: 2 of 11 variants have missing runs (57 of 60 runs have a result)" in text
    assert text.index("Incomplete: ") < text.index("Without positional encoding, ")
    assert "not ranked: 1 not run, 1 not finished of 6 seeds" in text


@pytest.mark.slow
def test_allowed_partial_ranks_and_says_so_on_its_face(messy, tmp_path):
    paths = write_report(messy, tmp_path, allow_partial=True)
    text = words(Page(paths.html.read_text(encoding="utf-8")))
    assert "Partial: 2 of 11 variants have missing runs" in text
    assert text.index("Partial: ") < text.index("On the finished seeds")
    assert "Partial: " in paths.markdown.read_text(encoding="utf-8")


def test_failures_exclusions_reuse_and_equals_are_all_listed(incomplete):
    page = words(Page(incomplete.html.read_text(encoding="utf-8")))
    markdown = incomplete.markdown.read_text(encoding="utf-8").replace("\\", "")
    for text in (page, markdown):
        assert "ValueError: table of 64 positions is too short" in text
        assert "loss became NaN at step 300" in text
        assert "not asked" in text
        assert "earlier/none-split-heads-padding-causal-s1-" in text
        assert (
            "sinusoidal · split-heads · causal and sinusoidal · split-heads · "
            "padding-causal are the same by construction: with right padding a causal decoder never sees "
            "a pad; they were trained once."
        ) in text


@pytest.mark.usefixtures("without_figures")
def test_a_leaky_split_is_labelled_on_top(made, tmp_path):
    study = made.Study(
        seeds=(1, 2),
        maps=False,
        axes={"positional": ["sinusoidal", "none"]},
        data={"split": "row", "leaky": True, "leak": 0.317},
    )
    folder = made.write_study(tmp_path / "runs", study)
    text = words(Page(write_report(folder, tmp_path / "reports").html.read_text(encoding="utf-8")))
    assert text.count("LEAKY") == 2
    assert ("LEAKY split: the source of 31.7 % of the test pairs is also in the training set") in text
    assert "source or target" not in text
    assert text.index("LEAKY") < text.index("Reproduction")


def test_a_leak_of_other_data_than_the_baselines_is_a_warning(made, tmp_path):
    study = made.Study(
        seeds=(1, 2),
        maps=False,
        axes={"data.pair": ["eng-spa", "eng-fra"], "positional": ["sinusoidal", "none"]},
        run_data=lambda axes, seed: {
            "languages": axes["data.pair"].split("-"),
            "leak": 0.317 if axes["data.pair"] == "eng-fra" else 0.0,
        },
    )
    analysis = Analysis(load_frames(made.write_study(tmp_path, study)))
    assert warnings(analysis) == [
        "LEAKY split of eng-fra · sinusoidal, eng-fra · none: the source of 31.7 % of the test pairs is also in the "
        "training set; scores are too high."
    ]


def test_a_single_variant_beyond_the_named_leaky_variants_is_singular(made, tmp_path):
    study = made.Study(
        seeds=(1, 2),
        maps=False,
        axes={"data.pair": ["eng-spa", "eng-fra", "eng-deu", "eng-ita", "eng-por"]},
        run_data=lambda axes, seed: {
            "languages": axes["data.pair"].split("-"),
            "leak": 0.0 if axes["data.pair"] == "eng-spa" else 0.25,
        },
    )
    (line,) = warnings(Analysis(load_frames(made.write_study(tmp_path, study))))
    assert line.startswith("LEAKY split of eng-fra, eng-deu, eng-ita and 1 more variant: ")


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_losses_that_do_not_compare_are_blank_with_the_reason(made, tmp_path):
    study = made.Study(
        axes={"quirks.shift_targets": [True, False]},
        maps=False,
        config=lambda axes: {"quirks": {"shift_targets": axes["quirks.shift_targets"]}},
    )
    folder = made.write_study(tmp_path / "runs", study)
    text = write_report(folder, tmp_path / "reports").html.read_text(encoding="utf-8")
    assert 'title="losses are not comparable: labels differ"' in text


@pytest.mark.usefixtures("without_figures")
def test_losses_on_held_out_data_are_shown_whatever_the_label_smoothing(made, tmp_path):
    study = made.Study(
        axes={"train.label_smoothing": [0.0, 0.1]},
        maps=False,
        seeds=(1, 2),
        config=lambda axes: {"train": {"label_smoothing": axes["train.label_smoothing"]}},
    )
    folder = made.write_study(tmp_path / "runs", study)
    text = write_report(folder, tmp_path / "reports").markdown.read_text(encoding="utf-8")
    assert "losses are not comparable" not in text
    table = text.split("### Further metrics")[1].splitlines()
    row = next(line for line in table if line.startswith("| 0.1 |"))
    losses = [json.loads((run / "results.json").read_text())["metrics"]["valid/loss"] for run in folder.glob("0.1-s*")]
    assert row.split("|")[2].split()[0] == f"{sum(losses) / 2:.3f}"


@pytest.mark.usefixtures("without_figures")
def test_code_that_changed_between_runs_is_stale(made, tmp_path):
    study = made.Study(seeds=(1, 2), maps=False, axes={"positional": ["sinusoidal", "none"]})
    folder = made.write_study(tmp_path / "runs", study)
    record = next(folder.glob("none-s2-*")) / "run.json"
    content = json.loads(record.read_text())
    content["plugins"][0]["source_sha256"] = "ef" * 32
    content["versions"]["torch"] = "2.14.0"
    record.write_text(json.dumps(content))
    text = words(Page(write_report(folder, tmp_path / "reports").html.read_text(encoding="utf-8")))
    assert "STALE: the source of positional none changed between runs" in text
    assert "Runs differ in torch: 2.13.0, 2.14.0." in text


@pytest.mark.slow
def test_a_study_of_numbers_without_factors_without_maps_reports(made, tmp_path):
    study = made.Study(
        axes={"model.d_model": [32, 64, 128]},
        seeds=(1, 2, 3),
        maps=False,
        one_at_a_time=True,
        data={"bag_of_words_upper_bound": None},
    )
    folder = made.write_study(tmp_path / "runs", study)
    paths = write_report(folder, tmp_path / "reports")
    text = words(Page(paths.html.read_text(encoding="utf-8")))
    assert "Attention maps" not in text
    assert "Axis by axis" not in text
    assert "3 seeds: a single sign-flip test requires at least 6 seeds" in text


@pytest.mark.usefixtures("without_figures")
def test_a_study_of_which_nothing_has_run_reports(made, tmp_path):
    axes = {"positional": ["sinusoidal", "none"]}
    states = {(slug, seed): "PLANNED" for slug in axes["positional"] for seed in (1, 2)}
    folder = made.write_study(tmp_path / "runs", made.Study(seeds=(1, 2), axes=axes, states=states))
    for allow_partial in (False, True):
        paths = write_report(folder, tmp_path / "reports", allow_partial=allow_partial)
        assert paths.answer.startswith("No answer yet: 0 of 4 runs")


def test_an_unwritable_folder_is_named(quickstart, tmp_path):
    taken = tmp_path / "reports"
    taken.write_text("a file")
    with pytest.raises(HeadToHeadError, match=r"cannot be written to .*; choose another folder with"):
        write_report(quickstart, taken)


@pytest.mark.slow
def test_the_command_prints_the_answer_and_where_it_stands(again):
    folder, output = again
    lines = output.splitlines()
    assert lines[0].startswith("Without positional encoding, exact match falls from 0.898 to 0.451")
    assert lines[1].startswith("Still learning: ")
    assert lines[2] == f"report:   {folder / 'index.html'}"


@pytest.mark.usefixtures("without_figures")
def test_the_command_says_where_the_report_came_from(made, tmp_path, monkeypatch):
    import headtohead.tracking

    study = made.Study(seeds=(1, 2), maps=False, axes={"positional": ["sinusoidal", "none"]})
    shipped, asked = made.write_study(tmp_path / "shipped", study), []

    def materialise(uri: str, name: str, into: Path) -> Path:
        asked.append((uri, name))
        (into / name).symlink_to(shipped)
        return into / name

    monkeypatch.setattr(headtohead.tracking, "materialise", materialise)
    store = "postgresql://me:secret@box/db"
    result = CliRunner().invoke(main, ["report", "quickstart", "--reports", str(tmp_path), "--from-mlflow", store])
    assert result.exit_code == 0, result.output
    assert asked == [(store, "quickstart")]
    text = (tmp_path / "quickstart" / "index.html").read_text(encoding="utf-8")
    assert "MLflow, postgresql://box/db" in text
    assert "secret" not in text


def test_a_report_shows_itself_in_jupyter(report):
    shown = report._repr_html_()
    assert "Without positional encoding, exact match falls from 0.898 to 0.451" in shown
    assert shown.count("<svg ") == 2


@pytest.fixture(scope="module")
def apart(quickstart, tmp_path_factory):
    """Seconds of a core that a process of its own took for the report, and what it imported."""
    code = (
        "import sys, time; from pathlib import Path; "
        "from headtohead.report.writing import write_report; "
        "write_report(Path(sys.argv[1]), Path(sys.argv[2])); "
        "print(time.process_time(), *sys.modules)"
    )
    folder = tmp_path_factory.mktemp("reports")
    command = [sys.executable, "-c", code, str(quickstart), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, *modules = done.stdout.split()
    return float(seconds), set(modules)


@pytest.mark.slow
def test_a_report_of_seventy_two_runs_takes_less_than_twelve_seconds_of_a_core(apart):
    """It takes 5 to 8 seconds; the rest is for machines that other processes share."""
    seconds, _ = apart
    assert seconds < 12


@pytest.mark.slow
def test_reporting_imports_neither_torch_nor_mlflow(apart):
    _, modules = apart
    assert "headtohead.report" in modules
    assert modules & {"torch", "mlflow"} == set()


def test_the_data_block_tells_what_a_reader_must_know_of_the_data(page, report):
    markdown = report.markdown.read_text(encoding="utf-8")
    for text in (words(page), markdown):
        for fact in ("target 1.2 %", "train 4", "valid 250", "104", "117", "MIT", "0.530", "iid"):
            assert fact in text


def test_costs_of_runs_trained_together_are_said_to_be_so(page, report):
    sentence = "those of a stack of 6 runs"
    assert sentence in words(page)
    assert sentence in report.markdown.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_description_is_markdown_that_fetches_and_runs_nothing(made, tmp_path):
    study = made.Study(
        seeds=(1, 2),
        maps=False,
        axes={"positional": ["sinusoidal", "none"]},
        description="Why *order* matters: <b>x</b> ![p](http://far.away/p.png)\n\n- [a](javascript:alert(1))",
    )
    paths = write_report(made.write_study(tmp_path / "runs", study), tmp_path / "reports")
    page = Page(paths.html.read_text(encoding="utf-8"))
    tags = [tag for tag, _ in page.elements]
    assert "em" in tags
    assert "b" not in tags
    assert "img" not in tags
    assert not [1 for _, attributes in page.elements if "alert" in (attributes.get("href") or "")]
    markdown = paths.markdown.read_text(encoding="utf-8")
    assert "Why *order* matters: &lt;b>" in markdown


def test_the_platform_is_named_without_the_machines_kernel(page, report):
    assert "platformLinux x86_64" in words(page)
    assert "generic" not in report.html.read_text(encoding="utf-8")
    assert "generic" not in report.markdown.read_text(encoding="utf-8")


# one list of blocks


class Markdown(html.parser.HTMLParser):
    """The text of Markdown, read by a public parser."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(MarkdownIt("commonmark").enable("table").render(markdown))

    def handle_data(self, data):
        self.text += f" {data}"


def words_of_page(text: str) -> list[str]:
    """Words of a page in reading order, without its contents, its figures and the line above its title."""
    without = re.sub(
        r'<(nav|svg|style|script|title)\b.*?</\1>|<div class="kicker">.*?</div>', " ", text, flags=re.DOTALL
    )
    return words_alone(without.replace("-<br>", "-").replace("<", " <"), Page)


def words_alone(text: str, parser) -> list[str]:
    """Words and numbers without the punctuation that formats put around them."""
    return re.findall(r"[^\s()|:;,/→·✓✗.“”]+", parser(text).text)


def words_of_markdown(text: str) -> list[str]:
    return words_alone(text, Markdown)


@pytest.fixture(params=["report", "incomplete"])
def written(request):
    return request.getfixturevalue(request.param)


def test_page_and_markdown_have_the_same_words_and_numbers_in_the_same_order(written):
    page = words_of_page(written.html.read_text(encoding="utf-8"))
    markdown = words_of_markdown(written.markdown.read_text(encoding="utf-8"))
    assert len(page) > 1500
    assert page == markdown


EVERY_BLOCK = [
    Heading(1, "Which? <1>", "top", "Top"),
    Contents(),
    Paragraph(("plain <2> ", Span("strong | 3", "strong"), " ", Link("results 4", "results.csv")), "note"),
    Prose("an *author's* text 5\n\n- and a list 6"),
    BulletList(("first _7_", (Span("LEAKY 8", "alarm"), " <b>"))),
    Definitions((("term 9", Span("code 10", "code")), ("b", "c"))),
    DataTable(
        (Column("variant\n11", align="left"), Column("score"), Column("verdict")),
        (
            TableRow((TableCell(VariantTitle("a · b 12", PALETTE[0])), TableCell("0.5", (CellNote("0.4 to 0.6"),)))),
            TableRow((TableCell("c 13"), TableCell("–"), TableCell(VerdictLabel("better", "better"))), emphasised=True),
        ),
    ),
    NamedFigure("scores", "alternative text", "caption 14"),
    SentenceTranslations("source 15", "reference 16", (TranslationOutput("output 17", True, (VariantTitle("a"),)),)),
    Details("summary 18", (Paragraph("inner"),)),
    CodeBlock("code <19> ``` & 20", "sh"),
    AttentionMaps(NamedFigure("maps", "maps", "opening 21"), {"open": {}}),
]


def test_every_kind_of_block_has_the_same_text_in_both_formats():
    assert {type(block) for block in EVERY_BLOCK} == set(typing.get_args(Block))
    page = words_of_page(html_page(EVERY_BLOCK, {"scores": "<svg></svg>", "maps": "<svg></svg>"}, title="", kicker=""))
    markdown = words_of_markdown(markdown_page(EVERY_BLOCK))
    assert page == markdown
    for number in range(1, 22):
        assert any(re.search(rf"(?<!\d){number}(?!\d)", word) for word in page), number


@pytest.mark.parametrize("block", [type(block) for block in EVERY_BLOCK if not isinstance(block, Contents)])
def test_a_block_that_one_format_leaves_out_is_seen(block):
    kept = [other for other in EVERY_BLOCK if not isinstance(other, block)]
    page = html_page(EVERY_BLOCK, {"scores": "<svg></svg>", "maps": "<svg></svg>"}, title="", kicker="")
    assert words_of_page(page) != words_of_markdown(markdown_page(kept))


def test_long_tables_are_folded_on_the_page_and_whole_in_both_formats():
    rows = tuple(TableRow((TableCell(f"row {number}"),)) for number in range(143))
    table = DataTable((Column("variant"),), rows)
    page = html_page([table, replace(table, rows=rows[:24])], {}, title="", kicker="")
    assert page.count('<details class="fold"><summary>143 rows</summary></details><div class="scroll">') == 1
    assert page.count('class="fold"') == 1
    assert ".fold:not([open]) + .scroll tbody tr:nth-child(n+21)" in page
    assert page.count("<tr><td>row ") == 143 + 24
    assert markdown_page([table]).startswith("143 rows\n\n|")


def test_a_verdict_is_a_word_that_opens_its_tests(report):
    text = report.html.read_text(encoding="utf-8")
    verdict = '<details><summary><span class="verdict worse">worse</span></summary><span class="details">98.75 %: '
    assert verdict in text
    assert re.search(r"\| \*\*worse\*\* \(98\.75 %: −\d\.\d+ to −\d", report.markdown.read_text(encoding="utf-8"))


def test_the_set_up_is_on_the_first_screen_and_the_configuration_is_complete(report, quickstart):
    record = json.loads((quickstart / "experiment.json").read_text())
    markdown = unescape(report.markdown.read_text(encoding="utf-8")).replace("\\", "")
    answer, caution, setup = markdown.split("\n\n")[1:4]
    assert answer == f"**{report.answer}**"
    assert caution == report.cautions[0]
    assert setup == (
        "Set-up: toy-grammar, English to French, 4,500 training and 250 test pairs; width 16, 4 heads, 1 + 2 layers, "
        "feed-forward 64, 48.2 k to 68.0 k parameters; 900 steps of up to 2048 tokens; learning rate 0.003, set in the "
        "experiment file, schedule constant; 6 seeds."
    )
    section = markdown.split("## Set-up")[1].split("## Data")[0]
    for name in record["variants"][0]["config"]["train"]:
        assert re.search(rf"[ :]{name} \S", section), name
    for fact in ("seeds: 1, 2, 3, 4, 5, 6", "steps: 900", "encoder.name sinusoidal / rotary / none"):
        assert fact in section
    assert record["data"]["data_hash"] in markdown
    assert record["command"] in markdown
    assert record["versions"]["torch"] in markdown


@pytest.mark.parametrize("count", [2, MOST_ENTRIES + 1])
def test_the_entries_in_which_variants_differ_are_described_and_many_are_folded(made, tmp_path, count):
    folder = made.write_study(
        tmp_path, made.Study(seeds=(1, 2), maps=False, axes={"positional": ["sinusoidal", "none"]})
    )
    file = folder / "experiment.json"
    entries = [
        {"family": "positional", "name": f"entry-{i}", "summary": f"Adds ``x`` {i} times."} for i in range(count)
    ]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"entries": entries}))
    written = write_report(folder, tmp_path / "reports")
    markdown, page = written.markdown.read_text(encoding="utf-8"), written.html.read_text(encoding="utf-8")
    assert "- entry-1: Adds x 1 times." in markdown.split("\n## ")[0]
    assert (f"<summary>Descriptions of {count} entries</summary>" in page) == (count > MOST_ENTRIES)


@pytest.mark.parametrize(
    ("file", "command"), [("{name}.yaml", "h2h report {name}.yaml"), ("a.yaml", "h2h report {name}")]
)
def test_an_experiment_of_another_name_than_its_file_is_reported_by_name(
    made, tmp_path, without_figures, file, command
):
    """``--name`` changes the name of an experiment."""
    folder = made.write_study(
        tmp_path, made.Study(seeds=(1, 2), maps=False, axes={"positional": ["sinusoidal", "none"]})
    )
    record = json.loads((folder / "experiment.json").read_text())
    file, command = file.format(name=record["name"]), command.format(name=record["name"])
    (folder / "experiment.json").write_text(json.dumps(record | {"file": file}))
    written = write_report(folder, tmp_path / "reports")
    reproduction = unescape(written.markdown.read_text(encoding="utf-8")).split("## Reproduction")[1]
    assert f"\n{command}\n" in reproduction


def test_a_learning_rate_of_no_experiment_file_is_the_default(made, tmp_path):
    folder = made.write_study(
        tmp_path, made.Study(seeds=(1, 2), maps=False, axes={"positional": ["sinusoidal", "none"]})
    )
    file = folder / "experiment.json"
    file.write_text(file.read_text().replace('"lr": 0.003', '"lr": 0.001'))
    assert "; learning rate 0.001, the default, schedule" in setup_line(Analysis(load_frames(folder)))


def test_a_report_names_a_data_file_without_its_folder(made, tmp_path, without_figures):
    study = made.Study(
        seeds=(1, 2),
        maps=False,
        axes={"positional": ["sinusoidal", "none"]},
        config=lambda axes: {"data": {"options": {"file": "/home/someone/eng-spa.tsv"}}},
    )
    paths = write_report(made.write_study(tmp_path / "runs", study), tmp_path / "reports")
    for page in (paths.markdown, paths.html):
        text = page.read_text(encoding="utf-8")
        assert "eng-spa.tsv" in text
        assert "someone" not in text


def test_a_tuned_learning_rate_states_the_values_and_the_metric(made, tmp_path):
    folder = made.write_study(
        tmp_path, made.Study(seeds=(1, 2), maps=False, axes={"positional": ["sinusoidal", "none"]})
    )
    file = folder / "experiment.json"
    record = json.loads(file.read_text())
    tried = [{"values": {"train.lr": rate}, "mean": rate, "sd": None} for rate in (0.001, 0.002, 0.004)]
    tuned = {"chosen": {"train.lr": 0.001}, "at_the_edge": ["train.lr"], "tried": tried}
    record["tuning"] = {
        "experiment": "quickstart-tuning",
        "fields": ["train.lr"],
        "metric": "valid/loss",
        "seeds": [1001],
        "variants": {"sinusoidal": tuned, "none": tuned},
    }
    file.write_text(json.dumps(record))
    start = "learning rate 0.003, tuned for each variant on valid/loss over 0.001 / 0.002 / 0.004"
    assert f"{start} and at the edge of this sweep for every variant, schedule" in setup_line(
        Analysis(load_frames(folder))
    )
    record["tuning"]["epochs"] = 0.5
    file.write_text(json.dumps(record))
    assert f"{start} with train.epochs 0.5 and at the edge" in setup_line(Analysis(load_frames(folder)))
    del record["tuning"]["epochs"]
    tuned_inside = tuned | {"chosen": {"train.lr": 0.002}, "at_the_edge": []}
    for inside, note in (
        (["none"], " and at the edge of this sweep for 1 of 2 variants"),
        (["sinusoidal", "none"], ""),
    ):
        record["tuning"]["variants"] |= dict.fromkeys(inside, tuned_inside)
        file.write_text(json.dumps(record))
        assert f"{start}{note}, schedule" in setup_line(Analysis(load_frames(folder)))


def test_answer_json_has_the_answer_and_every_test(report, quickstart):
    found = json.loads((report.folder / "answer.json").read_text(encoding="utf-8"))
    record = json.loads((quickstart / "experiment.json").read_text())
    assert found["answer"] == report.answer
    assert found["setup"].startswith("Set-up: ")
    assert len(found["contrasts"]) == len(record["contrasts"])
    worst = min(found["contrasts"], key=lambda contrast: contrast["difference"])
    assert worst["verdict"] == "worse"
    assert worst["interval"]["low"] < worst["difference"] < worst["interval"]["high"] < 0

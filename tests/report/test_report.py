"""The files of a report: complete, escaped, offline, the same in every format and each time."""

import base64
import csv
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt
from safetensors.numpy import load_file

from headtohead.analysis.change import setting_of
from headtohead.analysis.findings import rules
from headtohead.analysis.study import Analysis
from headtohead.cli import main
from headtohead.errors import HeadToHeadError
from headtohead.ownership import claim
from headtohead.report.content import Report
from headtohead.report.data import sample
from headtohead.report.render import environment, fragment, markdown_table
from headtohead.report.section import Section
from headtohead.report.sections import report_sections
from headtohead.report.setup import complete_setup, runs_section, setup_line, tuning_section
from headtohead.report.writing import write_files, write_report
from headtohead.storage.frames import load_frames
from headtohead.storage.translations import Translation
from made import case_table
from made.fake_study import Study, edit, tuning_trial, write_study
from made.page import Page

POSITIONAL = {"positional": ["sinusoidal", "none"]}


def written_text(paths) -> tuple[str, str]:
    """Return the text of the page, and the Markdown without escapes."""
    page = " ".join(Page(paths.html.read_text(encoding="utf-8")).text.split())
    return page, unescape(paths.markdown.read_text(encoding="utf-8")).replace("\\", "")


@pytest.fixture
def small(analysed):
    """Return a function that returns the analysis of a study of two variants and two seeds."""
    return lambda **options: analysed(**{"seeds": (1, 2), "axes": POSITIONAL} | options)


@pytest.fixture
def written(small, tmp_path, without_figures):
    """Return a function that writes the report of a study of two variants and two seeds."""
    return lambda **options: write_files(Report(small(**options)), tmp_path / "reports")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    """A part of the quickstart: 3 × 2 variants with 3 seeds."""
    axes = {"positional": ["sinusoidal", "rotary", "none"], "masking": ["padding-causal", "causal"]}
    return write_study(tmp_path_factory.mktemp("runs"), Study(axes=axes, seeds=(1, 2, 3)))


@pytest.fixture(scope="module")
def report(quickstart, tmp_path_factory):
    return write_report(quickstart, tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def page(report):
    return Page(report.html.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def incomplete(messy, tmp_path_factory, no_figures):
    with no_figures():  # tests/analysis draws those of such a study
        return write_report(messy, tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def again(quickstart, tmp_path_factory):
    """The same report by the command, where an earlier one has left a figure: its folder and the output."""
    folder = tmp_path_factory.mktemp("reports") / "quickstart"
    claim(folder, ["figures/old.svg"])
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "old.svg").write_text("<svg/>")
    runs, reports = str(quickstart.parent), str(folder.parent)
    result = CliRunner().invoke(
        main, ["report", "quickstart", "--runs", runs, "--reports", reports]
    )
    assert result.exit_code == 0, result.output
    return folder, result.output


def test_a_report_is_a_page_a_markdown_file_tables_and_valid_figures(report):
    figures = {path.stem for path in (report.folder / "figures").iterdir()}
    assert figures == {"attention", "contrasts", "curves", "interactions", "lengths", "scores"}
    for figure in (report.folder / "figures").iterdir():
        ET.fromstring(figure.read_text(encoding="utf-8"))
    others = {path.name for path in report.folder.iterdir()} - {"figures", ".headtohead.jsonl"}
    assert others == {"SHA256SUMS", "answer.json", "index.html", "report.md", "results.csv"}


def test_the_page_is_well_formed_and_loads_nothing(report, page):
    for tag, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "action", "data"):
            target = attributes.get(name)
            if target and not target.startswith(("#", "data:")):
                assert (tag, target) == ("a", "results.csv")
    text = report.html.read_text(encoding="utf-8")
    assert not re.search(r"@import|url\((?!#)|url\(['\"]?http", text)
    assert report.html.stat().st_size < 5_000_000


@case_table("name", ["report", "incomplete"], default=1)
def test_page_and_markdown_have_every_text_of_every_section(name, request, quickstart, messy):
    written = request.getfixturevalue(name)
    folder = quickstart if name == "report" else messy
    figures = [path.stem for path in (written.folder / "figures").glob("*.svg")]
    page, markdown = ("".join(text.split()) for text in written_text(written))

    def texts(section):
        yield from (section.title, section.text, *section.lines, section.code)
        yield from (line for row in section.rows for cell in row for line in cell.split("\n"))
        for part in section.parts:
            yield from texts(part)

    sections = report_sections(Report(Analysis(load_frames(folder))), figures)
    found = [text for section in (*sections.tables, *sections.details) for text in texts(section)]
    assert len(found) > 300
    for text in found:
        assert "".join(text.split()) in page
        assert "".join(text.split()).replace("`", "") in markdown.replace("`", "")


def test_every_variant_has_a_row_with_its_mean_and_its_costs(report, quickstart):
    experiment = json.loads((quickstart / "experiment.json").read_text())
    section = report.markdown.read_text(encoding="utf-8").split("### Scores and costs")[1]
    for cost in ("parameters", "FLOPs", "tokens/s", "memory", "time"):
        assert cost in section.split("\n|---")[0]
    for variant in experiment["variants"]:
        scores = [
            json.loads((quickstart / run["directory"] / "results.json").read_text())["metrics"][
                "test/exact_match"
            ]
            for run in experiment["runs"]
            if run["variant"] == variant["slug"]
        ]
        assert f"| {variant['title']} | {sum(scores) / 3:.3f} (" in section


def test_maps_are_in_the_page_to_a_byte_and_without_scripts_as_a_figure(page, report, quickstart):
    maps = json.loads(page.scripts[0])
    assert len(maps["variants"]) == 6
    assert maps["roles"] == ["encoder", "decoder", "cross"]
    found = next(v for v in maps["variants"] if v["title"] == "rotary, a causal mask")
    folder = next(quickstart.glob("rotary-causal-s1-*"))
    stored = load_file(folder / "attention" / "maps.safetensors")["1/decoder"]
    entry = found["probes"][1]["roles"]["decoder"]
    level = np.frombuffer(base64.b64decode(entry["bytes"]), dtype=np.uint8)
    assert (
        np.abs(level.reshape(entry["shape"]) / 255 * entry["scale"] - stored).max()
        < 0.5 / 255 + 1e-6
    )
    text = report.html.read_text(encoding="utf-8")
    panels = re.search(r'<div class="plot natural"[^>]*>(<svg.*?</svg>)\s*</div>', text, re.DOTALL)[
        1
    ]
    assert panels.count("<image ") == 6


def test_the_table_of_runs_has_every_run_with_its_score_and_the_verdict_on_its_variant(
    report, quickstart
):
    with report.csv.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    assert {row["state"] for row in rows} == {"DONE"}
    assert all(0 < float(row["test/exact_match"]) <= 1 for row in rows)
    analysis = Analysis(load_frames(quickstart))
    expected = {
        (contrast.variant, contrast.verdict) for contrast in analysis.families.variants.contrasts
    }
    assert {(row["variant"], row["verdict"]) for row in rows} == expected | {
        (analysis.frames.baseline, "baseline")
    }


def test_markdown_tables_are_whole_and_links_are_files(report):
    text = report.markdown.read_text(encoding="utf-8")
    for linked in re.findall(r"\]\(([^)]+)\)", text):
        assert (report.folder / linked).is_file()
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(blocks) > 10
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    assert rendered.count("<table>") == len(blocks)


@pytest.mark.slow
def test_a_report_written_twice_has_the_same_bytes_and_no_old_figures(report, again):
    folder, output = again
    for path in report.folder.rglob("[!.]*.*"):
        assert path.read_bytes() == (folder / path.relative_to(report.folder)).read_bytes()
    assert not (folder / "figures" / "old.svg").exists()
    assert output.splitlines()[: len(report.lines)] == list(report.lines)
    assert f"report:   {folder / 'index.html'}" in output


def test_cells_of_fragments_and_markdown_tables_are_escaped():
    frame = pd.DataFrame([{"<i>": "<i>|\n*x*", "n": "−1.5"}], dtype=object)
    section = Section("<b>", "<b>", frame=frame, lines=["<b>"], code="<b>")
    assert not {"<i>", "<b>&"} & set(
        re.findall(r"<\w>.?", fragment(section).replace("<b>&lt;b", ""))
    )
    assert section.numeric == [False, True]
    assert markdown_table(frame).splitlines()[-1] == r"| &lt;i&gt;\| (\*x\*) | −1.5 |"


def test_code_in_markdown_cannot_end_its_fence():
    code = f"a\n{'~' * 7}\n<img src=x>\n"
    template = environment("headtohead.report", html=False).from_string(
        "{{ code | fence }}\n{{ code }}\n{{ code | fence }}\n"
    )
    rendered = MarkdownIt("commonmark").render(template.render(code=code))
    assert rendered.count("<pre>") == 1
    assert "&lt;img" in rendered


def test_incomplete_variants_are_not_ranked_and_the_page_starts_with_this(incomplete):
    first = incomplete.answer.partition(". ")[0]
    assert first.startswith("Without positions (split heads, a padding and causal mask), exact")
    for text in written_text(incomplete):
        assert text.index("Incomplete: 2 of 11 variants") < text.index(first)
        assert "57 of 60 runs" in text
        assert "not ranked: 1 not run, 1 not finished of 6 seeds" in text


@pytest.mark.slow
def test_partial_ranks_are_labelled(messy, tmp_path, without_figures):
    paths = write_report(messy, tmp_path, allow_partial=True)
    for text in written_text(paths):
        assert text.index("Partial: 2 of 11 variants") < text.index("On the finished seeds")


def test_failures_exclusions_reuse_and_equal_variants_are_listed(incomplete):
    for text in written_text(incomplete):
        assert "ValueError: table of 64 positions is too short" in text
        assert "loss became NaN at step 300" in text
        assert "not asked" in text
        assert "earlier/none-split-heads-padding-causal-s1-" in text
        assert (
            "are the same by construction: with right padding a causal decoder never sees a pad"
            in text
        )


@pytest.mark.parametrize(("longest", "leaked"), [(9, "sources are"), (0, "text is")])
def test_a_leaky_split_is_a_warning_beside_the_answer(written, longest, leaked):
    paths = written(
        data={
            "split": "row",
            "leaky": True,
            "leak": 0.317,
            "longest": {"source": longest, "target": 9},
        }
    )
    expected = f"LEAKY split: 31.7 % of the test {leaked} in training; its effect on exact match is not known."
    assert paths.cautions[0] == expected
    assert f"LEAKY: 31.7 % of the test {leaked}" in written_text(paths)[0]


def test_a_validation_part_in_other_parts_is_a_warning_beside_the_answer(written):
    paths = written(data={"valid_leaks": {"train": 0.25, "test": 0.0}})
    leak = "25.0 % of the validation sources are in training, so the validation loss measures memorisation too"
    assert paths.cautions[0] == f"LEAKY split: {leak}."
    assert f"LEAKY: {leak}" in written_text(paths)[0]


def test_a_leak_of_other_data_than_the_baselines_is_a_warning(small):
    analysis = small(
        axes={"data.pair": ["eng-spa", "eng-fra"]},
        run_data=lambda axes: {
            "languages": axes["data.pair"].split("-"),
            "leak": 0.317 if axes["data.pair"] == "eng-fra" else 0.0,
            "longest": {"source": 0 if axes["data.pair"] == "eng-fra" else 9, "target": 9},
        },
    )
    (warning,) = [remark for remark in rules.find(analysis) if remark.severity == "warning"]
    assert warning.text.startswith("LEAKY split of eng-fra: 31.7 % of the test text")


def test_losses_that_do_not_compare_are_blank(small, tmp_path, without_figures):
    def losses(axes, section):
        (axis,) = axes
        *above, field = axis.split(".")[1:]

        def config(own):
            changes = {field: own[axis]}
            for name in above:
                changes = {name: changes}
            return {section: changes}

        analysis = small(axes=axes, config=config)
        text = write_files(Report(analysis), tmp_path / "reports").markdown.read_text(
            encoding="utf-8"
        )
        rows = text.split("#### Further metrics")[1].split("\n\n")[2].splitlines()[2:]
        return analysis.frames.directory, [row.split("|")[2].split()[0] for row in rows]

    assert "–" in losses({"quirks.notebooks.shift_targets": [True, False]}, "quirks")[1]
    folder, shown = losses(
        {"train.label_smoothing": [0.0, 0.1]}, "train"
    )  # smooths training losses only
    own = [
        json.loads((run / "results.json").read_text())["metrics"]["valid/loss"]
        for run in folder.glob("0.1-s*")
    ]
    assert f"{sum(own) / 2:.3f}" in shown


def test_changed_code_and_versions_are_stated(small):
    folder = small().frames.directory
    record = next(folder.glob("none-s2-*")) / "run.json"
    content = json.loads(record.read_text())
    plugin = content["plugins"][0] | {"source_sha256": "ef" * 32}
    edit(record, plugins=[plugin], versions=content["versions"] | {"torch": "2.14.0"})
    found = rules.find(Analysis(load_frames(folder)))
    assert found[0].severity == "warning"
    assert found[0].text.startswith("STALE: positional 'none' changed")
    assert "Runs differ in torch: 2.13.0, 2.14.0." in [remark.text for remark in found]


@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_study_without_results_has_a_report(written, allow_partial):
    states = {(slug, seed): "PLANNED" for slug in POSITIONAL["positional"] for seed in (1, 2)}
    assert written(states=states, allow_partial=allow_partial).answer.startswith(
        "No answer yet: 0 of 4 runs"
    )


def test_an_unwritable_folder_is_named(quickstart, tmp_path):
    (tmp_path / "reports").write_text("a file")
    with pytest.raises(
        HeadToHeadError, match=r"cannot write to .*; choose another folder with --reports"
    ):
        write_report(quickstart, tmp_path / "reports")


@pytest.mark.slow
def test_a_report_imports_neither_torch_nor_mlflow(small, tmp_path):
    code = (
        "import sys; from pathlib import Path; from headtohead.report.writing import write_report; "
        "write_report(Path(sys.argv[1]), Path(sys.argv[2])); print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, str(small(maps=True).frames.directory), str(tmp_path)]
    modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "matplotlib" in modules
    assert not {"torch", "mlflow"} & set(modules)


def test_data_setup_and_reproduction_are_complete(report, quickstart):
    record = json.loads((quickstart / "experiment.json").read_text())
    for text in written_text(report):
        for fact in (
            "target 1.2 %",
            "train 4,500",
            "valid 250",
            "MIT",
            "0.530",
            "iid",
            "a stack of 3 runs",
        ):
            assert fact in text
        assert record["data"]["data_hash"] in text
        assert record["command"] in text
        assert record["versions"]["torch"] in text
        assert "Linux x86_64" in text
        assert "generic" not in text
        for name in record["variants"][0]["config"]["train"]:
            assert re.search(rf"(, |train ?|\| ){name} \S", text), name


@case_table(
    ("file", "command"),
    [("{name}.yaml", "h2h report {name}.yaml"), ("a.yaml", "h2h report {name}")],
    default=1,
)
def test_the_command_names_the_file_or_an_experiment_with_another_name(
    small, tmp_path, file, command, without_figures
):
    """``--name`` changes the name of an experiment. A data file is named without its folder."""
    config = {"data": {"options": {"file": "/home/someone/eng-spa.tsv"}}}
    folder = small(config=lambda axes: config).frames.directory
    entries = [{"family": "positional", "name": "none", "summary": "Adds ``x``."}]
    edit(folder, file=file.format(name="quickstart"), entries=entries)
    for text in written_text(write_report(folder, tmp_path / "reports")):
        assert command.format(name="quickstart") in text
        assert "eng-spa.tsv" in text
        assert "someone" not in text
        assert "none: Adds x." in text


@case_table(
    ("rates", "expected"),
    [
        ((0.001, 0.001), "0.001, the default"),
        ((0.5, 0.5), "0.5, the same for all variants"),
        ((0.001, 0.5), "0.001 / 0.5, varied by the experiment"),
    ],
    default=3,
)
def test_where_a_learning_rate_comes_from_follows_from_the_rates_of_the_variants(
    rates, expected, analysed
):
    rate_of = dict(zip(("sinusoidal", "none"), rates, strict=True))

    def config(axes):
        return {"train": {"lr": rate_of[axes["positional"]]}}

    analysis = analysed(axes={"positional": [*rate_of]}, config=config)
    assert f"learning rate {expected}, schedule" in complete_setup(analysis)


def test_a_tuned_learning_rate_has_its_sweep_and_its_edge(small, tmp_path, without_figures):
    folder = small().frames.directory
    file = folder / "experiment.json"
    text = file.read_text()
    file.write_text(text.replace('"lr": 0.003', '"lr": 0.001'))
    analysis = Analysis(load_frames(folder))
    assert "; learning rate 0.001, the default, schedule" in complete_setup(analysis)
    assert "; learning rate 0.001; " in setup_line(analysis)
    file.write_text(text)
    tried = [tuning_trial(rate, [rate, rate + 0.2]) for rate in (0.001, 0.002, 0.004)]
    tuned = {
        "chosen": {"train.lr": 0.001},
        "rule": "more seeds",
        "reason": "fewer than 4 values have no diverged run",
        "at_the_edge": ["train.lr"],
        "tried": tried,
    }
    inside = tuned | {"chosen": {"train.lr": 0.002}, "at_the_edge": [], "tried": tried[:2]}
    sweep = {
        "experiment": "quickstart-tuning",
        "fields": ["train.lr"],
        "metric": "valid/loss",
        "seeds": [1001, 1002],
    }
    edit(folder, tuning=sweep | {"epochs": 0.5, "variants": {"sinusoidal": tuned, "none": inside}})
    assert (
        "learning rate 0.003, tuned for each variant on valid/loss over 0.001 / 0.002 / 0.004 with train.epochs 0.5, "
        "where the best value may be outside for 1 of 2 variants, schedule"
        in complete_setup(Analysis(load_frames(folder)))
    )
    assert "; learning rate 0.003, tuned; " in setup_line(Analysis(load_frames(folder)))
    paths = write_report(folder, tmp_path / "reports")
    page = paths.markdown.read_text(encoding="utf-8")
    assert "| sinusoidal | 0.101 (sd 0.141) | 0.102 (sd 0.141) |" in page
    assert "| lr 0.001 | best mean of 2 seeds; fewer than 4 values have no diverged run |" in page
    assert "train.epochs 0.5, which is not the length of this study" in page
    assert "Empty: a further value, which is tried only where the best one was at an edge." in page
    assert "tried with one seed" not in page
    assert paths.html.read_text(encoding="utf-8").count("--shade: 40%") == 2


def test_tuned_settings_that_are_not_all_numbers_stay_in_the_order_of_the_file(small):
    frames = small().frames
    values = [2.0, 3.0, 1.0, None]
    tried = [tuning_trial(value, [1.0, 1.1]) for value in values]
    tuned = {"chosen": {"train.lr": 2.0}, "rule": "more seeds", "at_the_edge": [], "tried": tried}
    tuning = {
        "experiment": "tuning",
        "fields": ["train.lr"],
        "metric": "valid/loss",
        "seeds": [1001, 1002],
        "variants": {"sinusoidal": tuned},
    }
    edit(frames.directory, tuning=tuning)
    section = tuning_section(Report(Analysis(load_frames(frames.directory))))
    assert section is not None
    columns = [name for name in section.columns if name.startswith("lr ")]
    assert columns == ["lr 2", "lr 3", "lr 1", "lr null"]


def test_answer_json_has_the_answer_every_test_and_the_fields_of_its_page(report, quickstart):
    found = json.loads(
        (report.folder / "answer.json").read_text(encoding="utf-8"), parse_constant=pytest.fail
    )
    record = json.loads((quickstart / "experiment.json").read_text())
    assert found["answer"] == report.answer
    assert len(found["contrasts"]) == len(record["contrasts"])
    assert {contrast["metric"] for contrast in found["contrasts"]} == {found["metric"]}
    worst = min(found["contrasts"], key=lambda contrast: contrast["difference"])
    assert (worst["direction"], worst["size"]) == ("worse", None)
    assert worst["interval"]["low"] < worst["difference"] < worst["interval"]["high"] < 0
    assert found["differences"] == report.differences.frame.to_dict("records")
    assert [r["text"] for r in found["remarks"] if r["severity"] != "note"] == list(report.cautions)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "answer-file.md").read_text(
        encoding="utf-8"
    )
    page = page.split("## h2h judge")[0]
    fields = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))))
    trend = next(iter(found["training"]["variants"].values()))
    changes = [contrast["change"] for contrast in found["contrasts"]]
    assert {"field": "masking", "from": "padding-causal", "to": "causal"} in changes
    assert None in changes  # positional and masking both differ
    _, against = found["contrasts"][0]["pairs"][0]
    setting = found["settings"][against]
    assert (setting["data"], setting["width"], setting["layers"]) == ("toy-grammar", 16, [1, 2])
    assert (setting["steps"], setting["passes"], setting["tuned"]) == (10, 7.5, [])
    assert list(found["settings"]) == [variant["slug"] for variant in record["variants"]]
    for names in (found, found["contrasts"][0], found["training"], trend, setting):
        assert set(names) <= fields


def test_a_side_that_equals_another_variant_has_the_passes_of_its_runs(analysed):
    axes = {"masking": ["padding-causal", "causal"], "positional": ["sinusoidal", "rotary"]}
    declared = [{"name": "rotary", "variant": "causal-rotary", "against": "causal-sinusoidal"}]
    equal = {"causal-sinusoidal": "padding-causal-sinusoidal"}
    analysis = analysed(axes=axes, declared=declared, equal_to=equal)
    assert setting_of(analysis, "causal-sinusoidal")["passes"] > 0


def test_a_text_without_sources_has_no_facts_on_sources(written):
    data = {
        "dataset": "text",
        "languages": ["none", "text"],
        "longest": {"source": 0, "target": 65},
    }
    data["bag_of_words_upper_bound"] = 1.0
    for text in written_text(written(data=data)):
        assert "blocks" in text
        assert "none to text" not in text
        absent = [
            "By length of the source",
            "bag-of-words upper bound",
            "word tokens",
            "| pairs |",
            "source 0",
        ]
        absent += ["not analysed", "one sided", "With and without padding", "Hollow points"]
        assert not [words for words in absent if words in text]


def test_examples_are_those_of_all_lengths_that_every_variant_has():
    sources = [
        " ".join("abc"[(length + copy) % 3] * length)
        for copy in range(2)
        for length in range(20, 0, -1)
    ]
    right = [Translation(source, (source,), source, True) for source in sources]
    wrong = [replace(row, hypothesis="x", exact=False) for row in right]
    other = [replace(row, references=("y",)) for row in right]
    assert [len(sources[index].split()) for index in sample({"a": right, "b": wrong}, True)] == [
        1,
        3,
        6,
        9,
        11,
        14,
        17,
        20,
    ]
    assert [len(sources[index].split()) for index in sample({"a": right, "b": wrong})] == [
        *range(13, 21)
    ]
    assert sample({"a": right, "b": other}) == []


def test_a_report_on_log_error_has_the_scores_without_padding_and_by_length_of_exact_match(written):
    markdown = written_text(
        written(primary="test/log_error", axes={"masking": ["padding-causal", "causal"]})
    )[1]
    assert "padded − unpadded" in markdown
    assert "### By length of the source" in markdown


def test_a_diverged_run_has_a_result_and_a_table_of_its_own(analysed):
    states = {("none", 1): "DIVERGED", ("none", 2): "FAILED"}
    report = Report(analysed(axes={"positional": ["sinusoidal", "none"]}, states=states))
    section = runs_section(report)
    assert " 1 without a result, " in section.text
    assert "(11 of 12 runs have a result)" in report.banner
    seeds = {part.title: list(part.frame["seed"]) for part in section.parts}
    assert seeds == {"Runs without a result": ["2"], "Diverged runs": ["1"]}


def test_batches_in_examples_and_in_tokens_are_stated_side_by_side(analysed):
    def config(axes):
        size = 32 if axes["positional"] == "none" else None
        return {"train": {"batch_size": size, "batch_tokens": 4096}}

    analysis = analysed(axes={"positional": ["sinusoidal", "none"]}, config=config)
    assert " steps of 32 pairs / up to 4096 tokens; " in complete_setup(analysis)


def test_the_layers_of_different_architectures_are_told_apart(analysed):
    def config(axes):
        if axes["positional"] == "none":
            return {"model": {"architecture": "decoder-only", "decoder_layers": 5}}
        return {"model": {"encoder_layers": 2, "decoder_layers": 3}}

    analysis = analysed(axes={"positional": ["sinusoidal", "none"]}, config=config)
    assert ", 2 encoder + 3 decoder, 5 decoder-only layers, " in setup_line(analysis)


def test_how_decoder_only_models_read_pairs_is_stated_once(analysed):
    def config(axes):
        layers = {"sinusoidal": 2, "rotary": 2, "none": 5}[axes["positional"]]
        return {"model": {"architecture": "decoder-only", "decoder_layers": layers}}

    analysis = analysed(axes={"positional": ["sinusoidal", "rotary", "none"]}, config=config)
    assert (
        "2 layers (decoder-only: source and target as one sequence, loss on the target alone) / "
        "5 layers (decoder-only), " in complete_setup(analysis)
    )


@pytest.mark.slow
def test_the_texts_of_a_report_need_no_matplotlib(quickstart, tmp_path):
    code = (
        "import sys; from pathlib import Path; import headtohead.report.render\n"
        "from headtohead.report.writing import current_files, read_report\n"
        "current_files(read_report(Path(sys.argv[1])), Path(sys.argv[2]))\n"
        "assert 'jinja2' in sys.modules and 'matplotlib' not in sys.modules"
    )
    arguments = [sys.executable, "-c", code, str(quickstart), str(tmp_path)]
    subprocess.run(arguments, check=True, timeout=100)

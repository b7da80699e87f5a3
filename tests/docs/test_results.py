"""The table and the cards of results, from made answers of reports."""

import json
import shutil
from pathlib import Path

import pytest
from scipy import stats

from cards import PUBLISHED, card, published_page
from combining import answer, remarks
from headtohead.storage.metrics import readable, show
from made import case_table
from measured import REPORTS, ROOT, by_change, limits, measured_results, slug
from results import ONE_SETTING, between, heat_map, table, write

BASE = "sinusoidal"
CHANGED = "rotary"
SAME_DATA = "Some settings have the same data"
SETTING = {
    "data": "text tinyshakespeare",
    "layers": [4],
    "steps": 1000,
    "passes": 0.78,
    "matched": "parameters",
    "tuned": ["train.lr"],
}


def contrast(difference: float, direction: str = "better", **fields: object) -> dict[str, object]:
    made = {
        "main": True,
        "family": "factors",
        "reason": None,
        "margin": 0.01,
        "name": "rotary instead of sinusoidal",
        "sentence": "Rotary instead of sinusoidal: a sentence.",
        "metric": "test/loss",
        "change": {"field": "positional", "from": "sinusoidal", "to": "rotary"},
        "setting": SETTING | {"width": 64},
        "difference": difference,
        "interval": {"low": difference - 0.01, "high": difference + 0.01},
        "verdict": direction,
        "direction": direction,
        "adjusted_p": 0.0004,
        "seeds": [1, 2, 3, 4, 5, 6],
        "sources": [{"name": "training seeds", "variance": 1e-5, "degrees": 5}],
    }
    return made | fields


def make_report(folder: Path, *contrasts: dict[str, object]) -> None:
    """Write a report whose contrasts have variants of their own, with the setting of the contrast."""
    folder.mkdir(parents=True)
    settings = {}
    stored = []
    rows = ["variant,title,run_hash,parameters/non_embedding,flops_per_token"]
    for number, made in enumerate(contrasts):
        base = f"{BASE}-{number}"
        changed = f"{CHANGED}-{number}"
        settings[base] = made["setting"]
        stored.append(made | {"pairs": [[changed, base]]})
        rows.append(f"{base},model {number},{folder.name}-{base},100,10")
        rows.append(f"{changed},rotary,{folder.name}-{changed},103,10")
    answer = {
        "metric": "test/loss",
        "scores": dict.fromkeys(settings, 1.5),
        "remarks": [{"severity": "caution", "limit": "training ended early"}],
        "contrasts": stored,
        "settings": settings,
    }
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    (folder / "results.csv").write_text("\n".join(rows), encoding="utf-8")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Three reports in which rotary lowers the loss by 0.02 to 0.028, one of them without a detected difference."""
    for number, width in enumerate((32, 64, 128)):
        direction = "no difference shown" if width == 128 else "better"
        made = contrast(-0.02 - 0.004 * number, direction, setting=SETTING | {"width": width})
        make_report(tmp_path / "reports" / f"width-{width}", made)
    return tmp_path / "reports"


def test_the_heat_map_has_the_changes_with_several_settings(reports: Path) -> None:
    shown = measured_results(reports)
    head, _, *rows = heat_map(shown).splitlines()
    columns = head.strip("| ").split(" | ")[1:]
    expected = {}
    for change, group in by_change(shown).items():
        places = {"<br>".join(result.setting.place) for result in group}
        if len(places) > 1:
            (metric,) = {readable(result.metric) for result in group}
            expected[f"[{group[0].name}]({slug(change)}.md)<br>{metric}"] = (places, group)
    assert 1 <= len(rows) == len(expected)
    for row in rows:
        name, *cells = row.removeprefix("| ").removesuffix(" |").split(" | ")
        places, group = expected[name]
        filled = [place for place, cell in zip(columns, cells, strict=True) if cell]
        assert {*filled} == places
        for result in group:
            assert result.interval in cells[columns.index("<br>".join(result.setting.place))]
    (first, *_), _ = next(iter(expected.values()))
    single = [result for result in shown if "<br>".join(result.setting.place) == first]
    assert heat_map(single) == ONE_SETTING


def test_results_that_share_a_cell_are_labelled_by_what_distinguishes_them(reports: Path) -> None:
    sizes = [
        contrast(0.03, setting=SETTING | {"width": 64, "matched": matched, "data": "wmt"})
        for matched in ("baseline-parameters", None)
    ]
    make_report(reports / "sizes", *sizes)
    make_report(reports / "two-models", contrast(-0.031), contrast(-0.077))
    text = heat_map(measured_results(reports))
    assert "equal parameters:<br>+0.030<br>" in text
    assert "sizes as configured:<br>+0.030<br>" in text
    assert "| −0.028<br>" in text
    assert "model “model 1”, `two-models`:<br>−0.077<br>" in text


def test_the_table_has_a_row_per_change_and_setting(reports: Path) -> None:
    _, _, *rows = table(measured_results(reports)).splitlines()
    assert rows[0] == (
        "| [rotary instead of sinusoidal](positional-sinusoidal-rotary.md) "
        "| text tinyshakespeare, width 128, 4 layers, 1,000 steps, 0.78 passes "
        '| 1.500 | −0.028 test loss | −0.038 to −0.018 | <span class="open">no difference shown</span> |'
    )
    assert '<span class="better">better</span>' in rows[1]
    assert len(rows) == 3


def test_a_card_names_its_change_and_the_margins(reports: Path) -> None:
    ((change, group),) = by_change(measured_results(reports)).items()
    page = card(change, group, reports)
    assert "the differences that one change, `positional`: sinusoidal → rotary, makes" in page
    assert "The margin, the smallest difference that matters, is 0.01 in test loss." in page


def test_two_settings_are_named_with_their_verdicts(reports: Path) -> None:
    shutil.rmtree(reports / "width-32")
    (group,) = by_change(measured_results(reports)).values()
    assert answer(group) == (
        "Difference in test loss by setting: width 128, 4 layers −0.028 (−0.038 to −0.018), no difference shown; "
        "width 64, 4 layers −0.024 (−0.034 to −0.014), better."
    )


def test_models_of_a_report_are_named_and_many_differences_have_their_range(tmp_path: Path) -> None:
    many = [
        contrast(-0.01 * number, "worse" if number == 3 else "better") for number in range(1, 5)
    ]
    make_report(tmp_path / "many", *many)
    ((change, group),) = by_change(measured_results(tmp_path)).items()
    page = card(change, group, tmp_path)
    assert "**4 differences in test loss, from −0.040 to −0.010: 3 better and 1 worse.**" in page
    assert "tuned learning rates, model “model 2” | 1.500 | −0.030 test loss" in page
    assert "model “model 2”" in table(group)


def test_reports_with_the_same_runs_are_not_combined(reports: Path) -> None:
    table_of_runs = (reports / "width-64" / "results.csv").read_text(encoding="utf-8")
    shared = table_of_runs.replace("width-64-rotary-0", "width-32-rotary-0")
    (reports / "width-64" / "results.csv").write_text(shared, encoding="utf-8")
    ((change, group),) = by_change(measured_results(reports)).items()
    page = card(change, group, reports)
    assert "not combined, because some reports share runs" in page
    assert "mean difference" not in page
    assert "combined by random effects" not in page


def test_a_variant_that_equals_another_one_has_its_costs(tmp_path: Path) -> None:
    """The table of runs lacks it; a contrast states which runs are the same."""
    make_report(tmp_path / "heads", contrast(0.04), contrast(0.0, family="variants", main=False))
    file = tmp_path / "heads" / "answer.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    average, first = stored["contrasts"]
    first |= {"name": "first", "pairs": [["rotary-1", "sinusoidal-0"]]}
    average["pairs"].append(["equal", "sinusoidal-1"])
    stored["settings"]["sinusoidal-1"] = average["setting"]
    repeated = first | {"name": "second", "pairs": [["equal", "sinusoidal-0"]]}
    stored["contrasts"].append(repeated | {"reason": "the same runs as first, counted once"})
    file.write_text(json.dumps(stored), encoding="utf-8")
    runs = file.with_name("results.csv")
    raised = runs.read_text(encoding="utf-8").splitlines()
    raised[-1] = "rotary-1,rotary,heads-rotary-1,227,20"
    runs.write_text("\n".join(raised), encoding="utf-8")
    ((change, group),) = by_change(measured_results(tmp_path)).items()
    page = card(change, group, tmp_path)
    assert "| +3.0 to +127.0 % | +0.0 to +100.0 % |" in page
    assert "for an average over several models the smallest and the largest value" in page
    stored["contrasts"].pop()
    file.write_text(json.dumps(stored), encoding="utf-8")
    assert "| 6 |  |  |" in card(change, measured_results(tmp_path), tmp_path)


def test_a_report_on_a_text_of_the_script_has_its_command(reports: Path) -> None:
    page = "~~~\nh2h run experiments/mine.yaml\n~~~\n  data: {dataset: text, file: ../data/english.txt}\n"
    (reports / "width-64" / "report.md").write_text(page, encoding="utf-8")
    ((change, group),) = by_change(measured_results(reports)).items()
    _, _, repeat = card(change, group, reports).partition("To repeat it:")
    assert repeat.startswith(
        "\n\n```sh\npython benchmarks/texts.py data --shakespeare input.txt --pairs spa.txt\n"
        "h2h run experiments/mine.yaml\n```\n\nThe first command writes the texts"
    )
    in_a_comment = page.replace("  data:", "# data:")
    (reports / "width-64" / "report.md").write_text(in_a_comment, encoding="utf-8")
    assert "texts.py" not in card(change, group, reports)


def test_three_settings_are_combined_and_never_counted(reports: Path) -> None:
    ((change, group),) = by_change(measured_results(reports)).items()
    page = card(change, group, reports)
    spread = sum((each + 0.024) ** 2 for each in (-0.020, -0.024, -0.028)) / 2
    half = (
        stats.t.ppf(0.975, 2) * (max(spread, 1e-5) / 3) ** 0.5
    )  # equal errors: the plain t interval
    low, high = -0.024 - half, -0.024 + half
    expected = f"mean difference in test loss is −0.024 ({low:.3f} to {high:+.3f})"
    assert expected.replace("-", "−") in page
    assert "95 % prediction interval for another setting: " in page
    assert " of 3" not in page
    assert "| +3.0 % | +0.0 % |" in page


@case_table(("data", "is_named"), [("abc", False), ("aab", True)], default=2)
def test_combined_settings_with_the_same_data_are_named(data, is_named, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    for number, name in enumerate(data):
        setting = SETTING | {"width": 32 * (number + 1), "data": f"text {name}"}
        made = contrast(-0.02 - 0.004 * number, setting=setting)
        make_report(reports / f"report-{number}", made)
    ((change, group),) = by_change(measured_results(reports)).items()
    page = card(change, group, reports)
    assert "combined by random effects" in page
    assert ("Some settings have the same data" in page) == is_named


@case_table(
    ("field", "values", "other"),
    [
        ("data", ["text a", "text b", "text c"], "another data set: "),
        ("width", [32, 64, 128], "another setting: "),
    ],
    default=2,
)
def test_differences_are_predicted_for_what_differs_between_the_settings(
    field: str, values: list[object], other: str, tmp_path: Path
) -> None:
    for number, value in enumerate(values):
        setting = SETTING | {"width": 64} | {field: value}
        make_report(
            tmp_path / f"report-{number}", contrast(-0.02 - 0.004 * number, setting=setting)
        )
    (group,) = by_change(measured_results(tmp_path)).values()
    assert f"95 % prediction interval for {other}" in answer(group)


@case_table(
    ("fields", "sentence"),
    [
        (
            [{"data": "tatoeba eng-spa"}, {"data": "toy-grammar"}, {}],
            "tokens of different datasets",
        ),
        ([{"data": "text shakespeare"}, {}, {"data": "text other"}], SAME_DATA),
        ([{"width": 16}, {"width": 32}, {"width": 64}], SAME_DATA),
    ],
    default=3,
)
def test_settings_with_other_tokens_are_not_combined_and_equal_texts_are_named(
    fields: list[dict[str, object]], sentence: str, tmp_path: Path
) -> None:
    for number, other in enumerate(fields):
        setting = SETTING | {"width": 64} | other
        make_report(
            tmp_path / f"report-{number}", contrast(-0.02 - 0.004 * number, setting=setting)
        )
    ((change, group),) = by_change(measured_results(tmp_path)).items()
    page = card(change, group, tmp_path)
    assert sentence in page
    assert "prediction interval for another data set" not in page


def test_cards_and_the_page_have_what_limits_the_reports(reports: Path) -> None:
    file = reports / "width-64" / "answer.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["remarks"] = [
        {"severity": "warning", "limit": "half of the test text is in training"},
        {"severity": "note", "limit": "a single data set"},
    ]
    file.write_text(json.dumps(stored), encoding="utf-8")
    shown = measured_results(reports)
    ((change, group),) = by_change(shown).items()
    expected = [
        "training ended early (`width-128`, `width-32`)",
        "half of the test text is in training (`width-64`)",
    ]
    assert limits(shown) == expected
    page = card(change, group, reports)
    assert f"What limits the reports: {'; '.join(expected)}." in page
    first_paragraph = page.split("\n\n")[1]
    assert first_paragraph.endswith("In `width-64`, half of the test text is in training.")


def test_an_identical_result_has_no_empty_brackets(tmp_path: Path) -> None:
    make_report(tmp_path / "one", contrast(-0.02))
    make_report(tmp_path / "two", contrast(0.0, "identical", setting=SETTING | {"width": 16}))
    (group,) = by_change(measured_results(tmp_path)).values()
    assert "width 16, 4 layers 0.000, identical" in answer(group)


def test_a_change_between_two_configurations_is_named_without_them(tmp_path: Path) -> None:
    name = "rotary instead of sinusoidal in GPT-2"
    make_report(tmp_path / "one", contrast(-0.02, family="added", name=name))
    (result,) = measured_results(tmp_path)
    assert result.name == "rotary instead of sinusoidal"


@case_table("page", ["<!-- table -->\n", "<!-- end of table -->", "no comment"], default=3)
def test_a_page_without_both_comments_of_a_place_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="expected one '<!-- table -->' and one"):
        between(page, "table", "content")


def test_settings_with_one_that_has_no_variance_are_not_combined(reports: Path) -> None:
    constant = [
        {"name": "training seeds", "variance": 0.0, "degrees": 5},
        {"name": "examples", "variance": 1e-8, "degrees": 19},
    ]
    made = contrast(0.0, "identical", setting=SETTING | {"width": 16}, sources=constant)
    make_report(reports / "width-16", made)
    ((change, group),) = by_change(measured_results(reports)).items()
    page = card(change, group, reports)
    assert (
        "not combined, because a difference that is the same in every seed has no variance" in page
    )
    assert "mean difference" not in page


def test_an_average_has_the_values_of_all_its_settings(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "mean"
    make_report(folder, contrast(-0.02, setting=SETTING | {"width": 32}))
    file = folder / "answer.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["settings"]["deep"] = SETTING | {"width": 32, "layers": [2, 2], "steps": 2000}
    stored["contrasts"][0]["pairs"].append(["deep rotary", "deep"])
    file.write_text(json.dumps(stored), encoding="utf-8")
    with (folder / "results.csv").open("a", encoding="utf-8") as runs:
        runs.write("\ndeep,deep,h1,200,20\ndeep rotary,deep rotary,h2,200,22")
    ((change, group),) = by_change(measured_results(tmp_path / "reports")).items()
    page = card(change, group, tmp_path / "reports")
    assert (
        "width 32, 4 and 2 encoder + 2 decoder layers, 1,000 and 2,000 steps, 0.78 passes" in page
    )
    assert "| +0.0 to +3.0 % | +0.0 to +10.0 % |" in page


def test_two_settings_are_not_combined(reports: Path) -> None:
    shutil.rmtree(reports / "width-32")
    ((change, group),) = by_change(measured_results(reports)).items()
    page = card(change, group, reports)
    assert (
        "Measured in 2 settings in test loss (text tinyshakespeare): too few to predict the difference in others."
        in page
    )
    assert "mean difference" not in page


def test_a_card_has_the_command_of_each_report_with_its_options(reports: Path) -> None:
    command = (
        "h2h run experiments/text.yaml --name other --no-tracking --set data.file=data/other.txt"
    )
    page = f"Seeds 1 to 6.\n\n~~~\n{command}\nh2h report experiments/text.yaml\n~~~\n"
    (reports / "width-64" / "report.md").write_text(page, encoding="utf-8")
    (reports / "width-128" / "report.md").write_text("Not from a file.\n", encoding="utf-8")
    ((change, group),) = by_change(measured_results(reports)).items()
    _, _, repeat = card(change, group, reports).partition("To repeat it:")
    assert repeat.startswith(
        "\n\n```sh\nh2h run experiments/text.yaml --name other --set data.file=data/other.txt\n```\n"
    )


def at_an_end(**fields: object) -> dict[str, object]:
    """Return a contrast whose scores are all 0.000."""
    fields |= {"reason": "every score is 0.000", "verdict": "cannot tell", "adjusted_p": None}
    sources = [{"name": "training seeds", "variance": 0.0, "degrees": 5}]
    return contrast(0.0, "cannot tell", interval=None, sources=sources, **fields)


def test_a_setting_at_an_end_is_named_and_neither_counted_nor_averaged(reports: Path) -> None:
    ((change, group),) = by_change(measured_results(reports)).items()
    before = answer(group)
    assert remarks(group) == ""
    for number in range(2):
        made = at_an_end(setting=SETTING | {"width": 8 + number})
        make_report(reports / f"zero-{number}", made)
    ((change, group),) = by_change(measured_results(reports)).items()
    assert len(group) == 5
    assert answer(group) == before
    assert remarks(group) == (
        "2 settings cannot tell, because all scores there are the lowest or highest possible ones, and are not counted."
    )
    page = card(change, group, reports)
    assert "| test loss: every score is 0.000 |  | cannot tell |" in page
    cell = '| test loss: every score is 0.000 |  | <span class="open">cannot tell</span> |'
    assert table(measured_results(reports)).count(cell) == 2
    shutil.rmtree(reports / "width-32")
    (group,) = by_change(measured_results(reports)).values()
    assert "2 settings in test loss (text tinyshakespeare): too few" in remarks(group)


def test_a_change_without_any_setting_that_can_tell_has_a_card(tmp_path: Path) -> None:
    make_report(tmp_path / "zero", at_an_end(sentence="Rotary: cannot tell."))
    ((change, group),) = by_change(measured_results(tmp_path)).items()
    assert answer(group) == "Rotary: cannot tell."
    assert "figures/" not in card(change, group, tmp_path)


def test_a_declared_contrast_is_called_by_its_values_and_its_component_can_be_unknown(
    tmp_path: Path,
) -> None:
    change = {"field": "positional", "from": "alibi", "to": "mine"}
    make_report(tmp_path / "card-mine", contrast(0.1, family="declared", change=change, label="x"))
    ((change_of_page, group),) = by_change(measured_results(tmp_path)).items()
    assert card(change_of_page, group, tmp_path).startswith("# Mine instead of alibi\n")
    (tmp_path / "mine.md").touch()
    page = card(change_of_page, group, tmp_path, tmp_path)
    assert (
        "[committed reports](README.md). Its author's page, with the source: [mine](mine.md)."
        in page
    )


def test_results_of_a_report_that_differ_in_matching_alone_are_not_combined(reports: Path) -> None:
    twice = [contrast(-0.02), contrast(0.01, setting=SETTING | {"width": 64, "matched": None})]
    make_report(reports / "matched-and-not", *twice)
    ((change, group),) = by_change(measured_results(reports)).items()
    page = card(change, group, reports)
    assert "not combined, because some are from one report" in page
    assert "mean difference" not in page


def test_two_differences_of_a_change_in_a_setting_have_a_row_each(reports: Path) -> None:
    make_report(reports / "two-heads", contrast(-0.031), contrast(-0.077))
    text = table(measured_results(reports))
    assert "model “model 0”, `two-heads` | 1.500 | −0.031 test loss" in text
    assert "model “model 1”, `two-heads` | 1.500 | −0.077 test loss" in text


def test_withdrawn_reports_and_contrasts_without_a_change_are_left_out(reports: Path) -> None:
    (reports / "withdrawn.yaml").write_text("width-64: trained again\n", "utf-8")
    untested = contrast(0.0, interval=None, sources=None)
    training = contrast(0.1, change={"field": "train.lr", "from": 0.1, "to": 0.2})
    make_report(
        reports / "others",
        contrast(0.1, change=None),
        contrast(0.1, main=False),
        untested,
        training,
    )
    assert {result.report for result in measured_results(reports)} == {"width-32", "width-128"}


def test_cards_that_no_report_has_any_more_leave_and_pages_of_authors_stay(
    reports: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    shutil.copy(ROOT / "docs" / "results" / "README.md", folder)
    (folder / "mine.md").write_text("# Mine\n\n**Better in 2\nof 3 tasks.**\n", encoding="utf-8")
    write(folder, reports)
    assert (folder / "positional-sinusoidal-rotary.md").is_file()
    assert (folder / "figures" / "positional-sinusoidal-rotary-0.svg").is_file()
    shutil.rmtree(reports)
    write(folder, reports)
    assert {page.name for page in folder.glob("*.md")} == {"README.md", "mine.md"}
    assert not list((folder / "figures").iterdir())
    assert "- [Mine](mine.md): Better in 2 of 3 tasks." in (folder / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_page_is_that_of_the_committed_report(name: str) -> None:
    stored = json.loads((REPORTS / name / "answer.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "results" / published_page(name)).read_text(encoding="utf-8")
    first, _, _ = stored["answer"].partition(". ")
    assert first in page
    for contrast in stored["contrasts"]:
        if contrast["main"]:
            assert show(contrast["difference"], contrast["metric"], signed=True) in page


def test_the_committed_table_has_every_result() -> None:
    page = (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8")
    assert table(measured_results(REPORTS)) in page


def test_a_declared_change_is_called_like_the_other_contrast_of_it(tmp_path: Path) -> None:
    claim = contrast(-0.02, family="declared", name="A claim (2017)")
    variant = contrast(-0.02, family="variants", name="with a rotation", main=False)
    make_report(tmp_path / "reports" / "claimed", claim, variant)
    ((change, group),) = by_change(measured_results(tmp_path / "reports")).items()
    assert card(change, group, tmp_path / "reports").startswith("# With a rotation\n")

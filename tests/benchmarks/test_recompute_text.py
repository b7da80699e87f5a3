"""Every number of the committed reports has a source, and a changed number, name, sentence or file is found."""

import functools
import json
import random
import re
import shutil
from pathlib import Path

import pytest

import cards as change_cards
import measured
from headtohead.report.writing import CHECKSUMS, write_report
from made import case_table
from made.fake_study import Study, write_study

pytestmark = pytest.mark.slow

REPORTS = Path(__file__).parents[2] / "reports"
DEMO = REPORTS / "demo"  # what `make demo` writes is not committed
FOLDERS = sorted(
    file.parent for file in REPORTS.rglob("answer.json") if not file.is_relative_to(DEMO)
)
CROSSED = {
    "positional": ["sinusoidal", "rotary", "none"],
    "attention": ["split-heads", "independent-heads"],
}
SPLIT = "heads-split-or-independent"
SIDES = {"variant": "rotary-split-heads", "against": "sinusoidal-split-heads"}
PAIRS = {
    "positional": ["sinusoidal", "rotary", "none"],
    "attention": ["split-heads", "independent-heads", "grouped-query"],
}


def score_of_heads(axes, seed):
    """Return a score in which independent heads gain with 4 heads and lose with 2."""
    heads = axes["model.heads"]
    is_independent = axes["attention"] == "independent-heads"
    is_rotary = axes["positional"] == "rotary"
    noise = (37 * (7 * seed + 3 * heads + 5 * is_rotary + 13 * is_independent)) % 11
    gain = 0.1 if heads == 4 else -0.1
    return 0.6 + 0.002 * noise + 0.02 * is_rotary + gain * is_independent


def score_of_depth(axes, seed):
    """Return a score that falls with the number of heads from 11 heads on."""
    heads = axes["model.heads"]
    noise = (heads * seed) % 5
    return 0.8 + 0.001 * noise - 0.012 * max(0, heads - 10) * (1 + 0.01 * seed)


def score_near_zero(axes, seed):
    """Return a score whose BLEU is near 0.4, of no variant far from the others."""
    noise = (7 * seed + len(str(axes["positional"]))) % 5
    return 0.0001 * (1 + 0.02 * noise)


STUDIES = {
    "crossed": Study(name="crossed", axes=CROSSED, maps=False, margin=0.03),
    "dependent": Study(
        name="dependent",
        axes={
            "attention": ["split-heads", "independent-heads"],
            "model.heads": [2, 4],
            "positional": ["sinusoidal", "rotary"],
        },
        maps=False,
        interactions=True,
        margin=0.01,
        score=score_of_heads,
    ),
    "ranking": Study(name="ranking", axes=PAIRS, maps=False, margin=0.02),
    "interactions": Study(
        name="interactions", axes=CROSSED, maps=False, interactions=True, seeds=(1, 2, 3, 4)
    ),
    "sizes": Study(
        name="sizes",
        axes={"positional": ["sinusoidal", "rotary", "none"], "size": ["small", "medium", "large"]},
        maps=False,
        seeds=(1, 2, 3, 4, 5),
    ),
    "declared": Study(
        name="declared",
        axes=CROSSED,
        maps=False,
        declared=[
            SIDES | {"name": "Rotary"},
            SIDES | {"name": "Rotary, loss", "metric": "test/loss"},
        ],
    ),
    "many": Study(
        name="many",
        axes={"model.heads": list(range(1, 21))},
        maps=False,
        one_at_a_time=True,
        score=score_of_depth,
    ),
    "late": Study(
        name="late", axes=CROSSED, maps=False, primary="test/loss", margin=0.05, late=True
    ),
    "floor": Study(
        name="floor",
        axes={"positional": ["sinusoidal", "rotary", "none", "alibi"]},
        maps=False,
        primary="test/bleu",
        margin=0.5,
        score=score_near_zero,
    ),
    "single": Study(name="single", axes={"positional": ["sinusoidal"]}, maps=False),
}
"""Studies whose reports have all kinds of tables; the default tier has the first three."""

POINTS = {
    "data_hash": "ab" * 32,
    "test_limit": None,
    "sentences": 250,
    "nearest_neighbour": {"exact_match": 0.0, "bleu": 9.25, "chrf": 20.0},
    "vocabulary_bound": {"exact_match": 0.9, "bleu": 95.0, "chrf": 96.0},
    "source_copy": {"exact_match": 0.0, "bleu": 0.1, "chrf": 12.0},
}
"""Scores without a model, beside the study ``floor``."""


@pytest.fixture(scope="module")
def written(tmp_path_factory, no_figures):
    """Return a function that returns the folder of the report of a study."""
    root = tmp_path_factory.mktemp("reports")

    @functools.cache
    def write(name: str) -> Path:
        with no_figures():
            folder = write_study(root / "runs", STUDIES[name])
            if name == "floor":
                points = json.dumps({"format": 1, "data": [POINTS]})
                (folder / "reference_points.json").write_text(points, encoding="utf-8")
            return write_report(folder, root).folder

    return write


@pytest.fixture
def copied(written, tmp_path):
    """Return a function that copies the report of a study, or a committed one, and replaces a text of its page."""

    def copy(name: str, old: str = "", new: str = "") -> Path:
        folder = tmp_path / name
        shutil.copytree(written(name) if name in STUDIES else REPORTS / name, folder)
        text = (folder / "report.md").read_text(encoding="utf-8")
        assert old in text
        (folder / "report.md").write_text(text.replace(old, new, 1), encoding="utf-8")
        return folder

    return copy


@case_table("name", STUDIES, default=3)
def test_every_number_of_a_written_report_has_a_source(name, written, benchmark, capsys):
    folder = str(written(name))
    assert benchmark("recompute_text").main([folder]) == 0, capsys.readouterr().out
    assert benchmark("recompute").main([folder]) == 0, capsys.readouterr().out


def test_every_number_of_the_committed_reports_has_a_source(benchmark, capsys):
    assert benchmark("recompute_text").main([str(folder) for folder in FOLDERS]) == 0, (
        capsys.readouterr().out
    )


@case_table(
    ("name", "old", "new"),
    [
        ("dependent", "(−0.102 with 2 heads and", "(−0.112 with 2 heads and"),
        ("dependent", "2 heads and +0.098 with 4 heads.", "2 heads and +0.088 with 4 heads."),
        ("crossed", "improves: +0.024 (+0.017", "improves: +0.025 (+0.017"),
        ("crossed", "(−0.460 to −0.446).**", "(−0.460 to −0.447).**"),
        ("crossed", "changes by less than 0.03: ", "changes by less than 0.04: "),
        ("quickstart", "the margin of 0.05 do", "the margin of 0.06 do"),
        ("crossed", "limits this answer: ", "limits this answer: 3 times "),
        ("quickstart", "LayerNorm (exact match 0.915).", "LayerNorm (exact match 0.913)."),
        ("crossed", "(+0.017 to +0.032) | better", "(+0.017 to +0.032) | worse"),
        (
            "quickstart",
            "Every point is a seed, the tick",
            "Every one of 5 points is a seed, the tick",
        ),
        ("crossed", "| 3 (+0.003 to +0.005)", "| 2 (+0.003 to +0.005)"),
        ("ranking", "rotary and 4 more", "rotary and 5 more"),
        ("ranking", "best within 0.020", "best within 0.030"),
        ("ranking", "0.936 (0.918 to 0.954) | 0.933", "0.937 (0.918 to 0.954) | 0.933"),
        ("ranking", "| worse | 0.046 |", "| worse | 0.016 |"),
        ("crossed", "+0.024 (+0.017 to +0.032) | better", "+0.024 (+0.017 to +0.033) | better"),
        ("crossed", "training seed | 0.012", "training seed | 0.013"),
        ("crossed", "| 0.0026 (86 %)", "| 0.0026 (76 %)"),
        ("crossed", "| 40 seeds |", "| 41 seeds |"),
        ("crossed", "is 1.1 times the residual", "is 1.3 times the residual"),
        ("crossed", "for 5 variants", "for 6 variants"),
        ("crossed", "(+58 % non-embedding", "(+48 % non-embedding"),
        ("ranking", "grouped-query attention, rotary and 4 more", "rotary and 4 more"),
        ("ranking", "before 7 of 9 variants levelled", "before 6 of 9 variants levelled"),
        ("heads-split-or-independent", "independent heads (2.", "independent heads (3."),
        ("ranking", "Of 9 ranked", "Of 8 ranked"),
        ("ranking", "0.963 (95 % interval 0.953", "0.963 (95 % interval 0.954"),
        ("ranking", "6 worse than", "5 worse than"),
        ("many", "; 2 more.", "; 3 more."),
        ("many", "exceeds ±0.00", "exceeds ±0.01"),
        ("interactions", "could be up to 0.014 better or", "could be up to 0.013 better or"),
        ("interactions", "could be up to 0.014 better or", "could be up to 0.014 worse or"),
        ("interactions", "(−0.003 to +0.014);", "(−0.004 to +0.014);"),
        ("sizes", "data and size, it is 0.007.", "data and size, it is 0.009."),
        ("sizes", "| 3 of 3 (100 % to 100 %)", "| 2 of 3 (100 % to 100 %)"),
        ("sizes", "45 runs: 9 variants", "45 runs: 8 variants"),
        ("sizes", "line misses 0 of 2 effects", "line misses 1 of 2 effects"),
        ("sizes", "mean width of an interval 0.066", "mean width of an interval 0.065"),
        ("sizes", "+0.025 (−0.014 to +0.064) |", "+0.025 (−0.014 to +0.065) |"),
        ("sizes", "+0.025 (−0.014 to +0.064) |", "+0.025 (−0.014 to +0.064) (missed) |"),
        ("sizes", "| +0.030 | +0.025 (", "| +0.030 | +0.026 ("),
        ("interactions", "a difference of 0.011 would", "a difference of 0.012 would"),
        ("floor", "The margin, 0.5, is wider", "The margin, 0.6, is wider"),
        ("floor", "(best mean 0.4)", "(best mean 0.5)"),
        ("floor", "(9.2 BLEU): 4 of 4 variants", "(9.4 BLEU): 4 of 4 variants"),
        ("floor", "4 of 4 variants", "3 of 4 variants"),
        ("floor", "the best of them has 0.4.", "the best of them has 0.3."),
    ],
    default=12,
)
def test_a_changed_number_is_found_with_its_line(name, old, new, copied, benchmark):
    folder = copied(name, old, new)
    lines = (folder / "report.md").read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, start=1) if new in text)
    found = benchmark("recompute_text").Checker(folder).check()
    assert {finding.line for finding in found} == {line}


@pytest.mark.parametrize("has_looks", [True, False])
def test_predictions_of_a_study_with_looks_have_their_level(
    has_looks, tmp_path, benchmark, no_figures
):
    study = write_study(tmp_path / "runs", STUDIES["sizes"])
    record = json.loads((study / "experiment.json").read_text(encoding="utf-8"))
    record["looks"] = {"seeds": [5, 10], "taken": [5], "since": "2026-01-01T00:00:00+00:00"}
    (study / "experiment.json").write_text(json.dumps(record), encoding="utf-8")
    with no_figures():
        folder = write_report(study, tmp_path).folder
    page = benchmark("report_text.page").Page(folder)
    if not has_looks:
        page.answer["looks"] = None
    start = page.lines.index("### Effects at the largest size")
    row = next(line for line in page.lines[start:] if "rotary instead" in line)
    cells = row.strip("| ").split(" | ")
    problem = benchmark("report_text.size_prediction").row_problem(page, 0, cells)
    assert bool(problem) == (not has_looks)


SECTIONS = (
    "Scores and costs",
    "Each variant against the baseline",
    "Further metrics",
    "Training",
    "Effects by setting",
    "Interactions",
    "Variance by source",
    "Other tests",
)


def perturbed(text: str, generator: random.Random) -> tuple[str, set[int]]:
    """Return a report with another digit in every row of the tables of results, and the numbers of these lines."""
    lines, changed = text.splitlines(), set()
    section = ""
    for index, line in enumerate(lines):
        if line.startswith("#"):
            section = line.lstrip("# ")
        if section not in SECTIONS or not line.startswith("|") or "interval" in line:
            continue
        start = line.index("|", 1)  # the name of the row is no number
        digits = [
            start + found.start() for found in re.finditer(r"(?<=\.)\d+(?= |\))", line[start:])
        ]
        if digits:
            place = generator.choice(digits)
            lines[index] = f"{line[:place]}{(int(line[place]) + 5) % 10}{line[place + 1 :]}"
            changed.add(index + 1)
    return "\n".join(lines), changed


@case_table("name", ["quickstart", "crossed", SPLIT, "sizes", "interactions"], default=2)
def test_a_changed_digit_of_every_row_of_results_is_found(name, copied, benchmark):
    checked = benchmark("recompute_text")
    folder = copied(name)
    text = (folder / "report.md").read_text(encoding="utf-8")
    generator = random.Random(4)
    for _ in range(3):
        changed_text, changed = perturbed(text, generator)
        assert len(changed) > 15
        (folder / "report.md").write_text(changed_text, encoding="utf-8")
        found = {finding.line for finding in checked.Checker(folder).check()}
        assert changed - found == set()


def test_every_number_of_the_index_of_reports_is_in_its_report(benchmark):
    """A withdrawn report claims nothing, so the index has no row for it."""
    claims = (
        (REPORTS / "README.md").read_text(encoding="utf-8").split("## What each report claims")[1]
    )
    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    missing, rows = {}, 0
    for line in claims.splitlines():
        name, _, rest = line.removeprefix("| ").partition(" | ")
        file = REPORTS / name / "report.md"
        if not line.startswith("| ") or not file.is_file():
            continue
        rows += 1
        printed = {text.rstrip(",") for text in number.findall(file.read_text(encoding="utf-8"))}
        claimed = {text.rstrip(",") for text in number.findall(rest.rpartition(" | ")[0])}
        missing[name] = claimed - printed
    assert rows == len(FOLDERS) - len(benchmark("withdrawn").withdrawn())
    assert {name: numbers for name, numbers in missing.items() if numbers} == {}


@case_table("name", ["quickstart", SPLIT, "crossed", "dependent", "ranking", "late"], default=3)
def test_every_changed_number_of_the_answer_is_found(name, copied, benchmark):
    checker = benchmark("recompute_text").Checker(copied(name))
    (index,) = (i for i, line in enumerate(checker.page.lines) if line.startswith("**"))
    line = checker.page.lines[index]
    digits = [found.start() for found in re.finditer(r"(?<=\.)\d+(?![\d.])", line)]
    assert len(digits) > 3
    for digit in digits:
        changed = f"{line[:digit]}{(int(line[digit]) + 5) % 10}{line[digit + 1 :]}"
        checker.findings.clear()
        checker.sentence(index + 1, changed)
        assert checker.findings, changed


@case_table(
    ("name", "old", "new"),
    [
        ("dependent", "together they are better than", "together they are worse than"),
        ("crossed", "worsens: −0.453", "improves: −0.453"),
        ("crossed", "worsens: −0.453", "worsens: −0.454"),
        ("crossed", "worsens: −0.453", "worsens: 0.453"),
        (
            "crossed",
            "(−0.460 to −0.446).",
            "(−0.460 to −0.446); the difference is smaller than the margin of 0.03.",
        ),
        ("dependent", "could be up to 0.012 ", "could be up to 0.013 "),
        (
            "interactions",
            "together they could be up to 0.0",
            "together they could be up to 0.1",
        ),
        ("interactions", "it could be up to 0.014 better or", "it could be up to 0.014 worse or"),
    ],
    default=3,
)
def test_a_wrong_sentence_of_answer_json_is_found(name, old, new, copied, benchmark):
    folder = copied(name)
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    changed = []
    for contrast in answer["contrasts"]:
        if old in contrast["sentence"]:
            contrast["sentence"] = contrast["sentence"].replace(old, new)
            changed.append(contrast["sentence"])
    assert changed
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    benchmark("recompute_text")
    checked = benchmark("report_text.answer")
    found = checked.sentence_problems(checked.Page(folder))
    assert len(found) >= len(changed)


def test_a_limit_that_the_page_does_not_have_is_found(copied, benchmark):
    folder = copied("crossed", "; a single data set (toy-grammar).", ".")
    checked = benchmark("recompute_text")
    (found,) = checked.sentence_findings(checked.Page(folder))
    assert found.problem.endswith("a single data set (toy-grammar)")


def test_a_sentence_that_answer_json_has_with_other_words_is_found(copied, benchmark):
    folder = copied("crossed")
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    answer["setup"] = answer["setup"].replace("toy-grammar, 4,500", "4,500")
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    checked = benchmark("recompute_text")
    (found,) = checked.sentence_findings(checked.Page(folder))
    assert found.problem.startswith("answer.json has another sentence: Set-up: 4,500 training")


def test_an_edited_an_added_and_a_missing_file_are_found(copied, benchmark):
    checksum_findings = benchmark("recompute_text").checksum_findings
    folder = copied("crossed")
    assert checksum_findings(folder) == []
    with (folder / "report.md").open("a", encoding="utf-8") as file:
        file.write("A word.\n")
    (folder / "results.csv").unlink()
    (folder / "notes.md").write_text("A word.\n", encoding="utf-8")
    found = [finding.problem.partition(" ")[0] for finding in checksum_findings(folder)]
    assert found == ["notes.md", "report.md", "results.csv"]
    (folder / CHECKSUMS).unlink()
    assert [finding.problem for finding in checksum_findings(folder)] == [
        "SHA256SUMS is missing; h2h report writes it"
    ]


def test_a_written_report_has_the_checksums_of_its_files(quickstart, tmp_path, benchmark):
    folder = write_report(quickstart, tmp_path / "reports").folder
    assert benchmark("recompute_text").checksum_findings(folder) == []
    assert "report.md" in (folder / CHECKSUMS).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def card(tmp_path_factory, no_figures):
    """Return the card of a change that three reports have, and the folder of the reports."""
    root = tmp_path_factory.mktemp("card")
    for number in range(3):
        study = Study(
            name=f"study-{number}",
            axes={"positional": ["sinusoidal", "rotary"]},
            maps=False,
            score=lambda axes, seed, gain=0.01 * (number + 1): (
                0.5 + 0.013 * ((7 * seed) % 5) + (axes["positional"] == "rotary") * gain * seed
            ),
        )
        with no_figures():
            write_report(write_study(root / "runs", study), root / "reports")
    ((change, group),) = measured.by_change(measured.measured_results(root / "reports")).items()
    file = root / "card.md"
    file.write_text(change_cards.card(change, group, root / "reports"), encoding="utf-8")
    return file, root / "reports"


def test_changed_numbers_of_a_card_are_found(card, benchmark, tmp_path):
    benchmark("recompute_text")
    cards = benchmark("report_text.cards")
    file, reports = card
    text = file.read_text(encoding="utf-8")
    assert "Over 3 settings, the mean difference" in text
    assert cards.is_card(file)
    assert cards.card_findings(file, reports) == []
    digits = []
    for line in text.splitlines():
        if line.startswith(("**", "| toy")):
            for found in re.finditer(r"\d(?=[\d,.]*(?: \||[ ).;%]))", line):
                digits.append((line, found.start()))
    assert len(digits) > 40
    changed = tmp_path / "card.md"
    for line, place in random.Random(3).sample(digits, 15):
        other = f"{line[:place]}{(int(line[place]) + 5) % 10}{line[place + 1 :]}"
        changed.write_text(text.replace(line, other), encoding="utf-8")
        assert cards.card_findings(changed, reports), other


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("; training ended before a variant", "; training ended after a variant"),
        ("What limits the reports: ", "What limits the reports: too few seeds (`mqar`); "),
        (" What limits the reports: .*", ""),
    ],
)
def test_changed_limits_of_a_card_are_found(old, new, benchmark, tmp_path):
    benchmark("recompute_text")
    page = (measured.RESULTS / "attention-split-heads-linear.md").read_text(encoding="utf-8")
    changed_page, times = re.subn(old, new, page)
    assert times == 1
    changed = tmp_path / "card.md"
    changed.write_text(changed_page, encoding="utf-8")
    assert benchmark("report_text.cards").card_findings(changed, REPORTS)


def test_every_number_of_the_committed_cards_is_that_of_a_report(benchmark, capsys):
    checked = benchmark("recompute_text")
    is_card = benchmark("report_text.cards").is_card
    cards = [str(file) for file in measured.RESULTS.glob("*.md") if is_card(file)]
    assert cards
    assert checked.main(cards) == 0, capsys.readouterr().out

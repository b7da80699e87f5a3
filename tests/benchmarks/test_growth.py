"""Work grows linearly with the number of runs, and the parent frees the memory of stacks that ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.analysis.study import Analysis
from headtohead.config.loading import load_file
from headtohead.planning.planner import make_plan
from headtohead.plugins.registry import current
from headtohead.report.content import Report
from headtohead.report.render import markdown, page
from headtohead.report.sections import report_sections
from headtohead.storage.frames import load_frames
from headtohead.storage.progress import read_progress

pytestmark = pytest.mark.slow

MakeStudy = Callable[..., Path]

ALLOWED = 1.3
"""Allowed ratio to linear growth, for timing noise; quadratic growth would have a ratio of 4."""


@pytest.fixture(scope="module")
def studies(make_study: MakeStudy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files of studies of 100 and of 400 runs, with the same models and seeds."""
    folders = [tmp_path_factory.mktemp(name) for name in ("hundred", "four-hundred")]
    return make_study(folders[0], 10, 5), make_study(folders[1], 40, 5)


def plan(file: Path) -> None:
    made = make_plan(load_file(file), current(), file.parent / "runs")
    assert made.remaining == []


def status(file: Path) -> None:
    assert read_progress(file.parent / "runs" / "large").runs


def report(file: Path) -> None:
    """Create a report without figures, which have a limited number of rows."""
    content = Report(Analysis(load_frames(file.parent / "runs" / "large")))
    sections = report_sections(content)
    assert content.answer in markdown(content, sections, ()).replace("\\", "")
    page(content, sections, {})


REPEATED = {plan: 1, status: 20, report: 1}
"""Repetitions per measurement; reading the status of 100 runs takes only 4 ms."""


@pytest.mark.parametrize("work", [plan, status, report])
@pytest.mark.timed
def test_the_time_per_run_does_not_grow_with_the_number_of_runs(
    work: Callable[[Path], None], studies: tuple[Path, Path]
) -> None:
    small, large = studies
    seconds: dict[Path, list[float]] = {small: [], large: []}
    work(small)  # imports of the first call do not count
    for _ in range(4):
        for file in (small, large):
            began = time.process_time()
            for _ in range(REPEATED[work]):
                work(file)
            seconds[file].append(time.process_time() - began)
        if min(seconds[large]) < 4 * ALLOWED * min(seconds[small]):
            break  # further rounds could only reduce the noise
    assert min(seconds[large]) < 4 * ALLOWED * min(seconds[small]), seconds


@pytest.mark.parametrize(("work", "most"), [(plan, 3), (status, 3), (report, 8)], ids=["plan", "status", "report"])
def test_every_record_and_every_folder_is_read_once(
    work: Callable[[Path], None], most: int, studies: tuple[Path, Path]
) -> None:
    opened = _opened(lambda: work(studies[1]), studies[1].parent / "runs" / "large")
    runs = {path for path in opened if path.parent.parent.name == "large"}
    assert len(runs) <= most * 400
    # A report reads the translations and maps of a few runs, and with each file the checksums in their status.json.
    shown = {path.parent for path in opened if path.name == "translations.tsv"}
    shown |= {path.parent.parent for path in opened if path.name == "maps.safetensors"}
    assert len(shown) < 100
    again = [
        path
        for path, times in opened.items()
        if times > 1 and path.name != "probes.json" and (path.suffix == ".json" or path.is_dir())
        if not (path.name == "status.json" and path.parent in shown)
    ]
    # The comparison with the present plugins reads the record of one run of each of the 80 variants.
    assert len({path.parent for path in again if path.name in ("run.json", "status.json")}) <= 80
    assert [path for path in again if path.name not in ("run.json", "status.json")] == []


_opened_paths: dict[Path, int] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    watched = event in {"open", "os.scandir", "os.listdir"}
    if watched and _opened_paths is not None and isinstance(arguments[0], str | Path):
        path = Path(arguments[0])
        _opened_paths[path] = _opened_paths.get(path, 0) + 1


def _opened(action: Callable[[], None], below: Path) -> dict[Path, int]:
    """Return how often an action opens each file below a folder."""
    global _opened_paths
    if not getattr(sys, "_h2h_audited", False):
        sys.addaudithook(_audit)
        sys._h2h_audited = True  # type: ignore[attr-defined]
    _opened_paths = {}
    try:
        action()
        return {path: times for path, times in _opened_paths.items() if below in (path, *path.parents)}
    finally:
        _opened_paths = None

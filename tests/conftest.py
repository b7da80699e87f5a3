"""What all tests share: the command line, called in this process."""

import gc
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from click.testing import CliRunner
from filelock import FileLock
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from headtohead.cli import main
from headtohead.plugins import registry as plugin_registry
from made import PATIENT, separate_registry

Completed = subprocess.CompletedProcess[str]
Command = Callable[..., Completed]

# Tests start hundreds of processes. Each compiled every module anew where this is set, and pytest
# all tests of every worker.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# One thread for tiny tensors, here and in every process that is started: more only cost time.
# Torch reads it when it is loaded, which nothing has done yet.
os.environ["OMP_NUM_THREADS"] = "1"

# Threads of OpenMP that wait by spinning take the cores from other tests: a step of a tiny model
# with two threads then takes a second instead of 20 ms.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["GOMP_SPINCOUNT"] = "0"

# A busy machine fails no property: neither a limit on one example's time nor on drawing it.
settings.register_profile(
    "tests", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

# Hypothesis also draws the constants of the source, for which every worker parses all modules for some seconds.
providers._get_local_constants = lambda: providers._local_constants

# No test outlives a power failure, so that none waits for the disk; commands in processes of their own do.
os.fsync = lambda descriptor: None

# Tests that a shell starts in the background ignore Ctrl-C, and under nohup the end of the terminal. Commands
# inherit this, and would go on when a test interrupts them.
for ignored, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, handler)

# What is loaded before the first test stays: half a million objects, among which no garbage is
# looked for, then or later.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest modules, by their ``timeout`` marker, so that they are not the last ones of one worker.

    A timed test that fails is repeated up to twice: a slow product fails three times, a busy machine does not.
    """
    longest: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0), marker.args[0] if marker else 0)
        if item.get_closest_marker("timed"):
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun="AssertionError"))
    items.sort(key=lambda item: -longest[item.path])


@pytest.fixture(scope="session")
def real() -> Callable[[str], Path]:
    """Return the path of a Tatoeba file, or skip the test."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("H2H_TEST_DATA", default))

    def find(name: str) -> Path:
        if not (folder / name).is_file():
            pytest.skip(f"requires {name}: set H2H_TEST_DATA to its folder")
        return folder / name

    return find


def pytest_collection_finish() -> None:
    """Keep what was loaded, and look for garbage among what tests make, less often than by default."""
    gc.freeze()
    gc.set_threshold(30_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def h2h_here() -> Command:
    """Call the command line in a folder, as a new process would, but in this process.

    Torch is loaded here already, and so it is in the server that stacks are forked from. Tests
    that kill the command, or time it, start a process.
    """

    def call(folder: Path, *arguments: str, **environment: str) -> Completed:
        away = dict.fromkeys(name for name in os.environ if name.startswith(("H2H_", "MLFLOW_")))
        with pytest.MonkeyPatch.context() as patch, separate_registry():
            patch.chdir(folder)
            done = CliRunner().invoke(
                main, list(arguments), prog_name="h2h", env=away | PATIENT | environment
            )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Completed(arguments, done.exit_code, done.stdout, done.stderr)

    return call


@pytest.fixture
def fewest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restrict the registry to the entries that every check needs, and rotary."""
    registry = plugin_registry.load_registry()
    kept = {
        "positional": ("none", "sinusoidal", "rotary"),
        "attention": ("split-heads",),
        "masking": ("padding", "padding-causal"),
    }
    for family, names in kept.items():
        registry.entries[family] = {name: registry.entries[family][name] for name in names}
    monkeypatch.setattr(plugin_registry, "_current", registry)


@pytest.fixture
def own_registry() -> Iterator[None]:
    """Have the plugins of a new process in a test; what it registers is removed at its end."""
    with separate_registry():
        yield


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for prepared data, which tests share: preparing the default data takes a second."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[..., Path]:
    """Return a function that fills a folder once per session and returns it; all workers of xdist share it."""
    own = tmp_path_factory.getbasetemp()
    session = own if worker_id == "master" else own.parent

    def filled(name: str, fill: Callable[[Path], object]) -> Path:
        folder, complete = session / name, session / f"{name}.complete"
        with FileLock(session / f"{name}.lock"):
            if not complete.exists():
                folder.mkdir()
                fill(folder)
                complete.touch()
        return folder

    return filled


@pytest.fixture(scope="session")
def store_template(once: Callable[..., Path]) -> Path:
    """One empty store, created the slow way once and copied for every test that needs one."""

    def create(folder: Path) -> None:
        from headtohead_mlflow.store import open_store

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's own use of its libraries
            open_store(f"sqlite:///{folder}/mlflow.db", create=True)

    return once("store", create) / "mlflow.db"


@pytest.fixture(scope="session")
def no_figures() -> Callable[[], AbstractContextManager[None]]:
    """Leave figures out of reports meanwhile, where a test is about something else: they take longer than the rest."""
    from headtohead.report import writing

    draw = writing.draw

    @contextmanager
    def leave_out() -> Iterator[None]:
        writing.draw = lambda report: {}
        try:
            yield
        finally:  # fixtures may leave in another order than they entered
            writing.draw = draw

    return leave_out


@pytest.fixture
def without_figures(no_figures: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Leave figures out of the reports of a test."""
    with no_figures():
        yield


@pytest.fixture
def analysed(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that writes a study without maps, with the options of `Study`, and returns its analysis.

    ``allow_partial`` is an option of the analysis.
    """
    from headtohead.analysis.study import Analysis
    from headtohead.storage.frames import load_frames
    from made.fake_study import Study, write_study

    def analyse(allow_partial: bool = False, **options: Any) -> Analysis:
        folder = write_study(Path(mkdtemp(dir=tmp_path)), Study(**{"maps": False} | options))
        return Analysis(load_frames(folder), allow_partial=allow_partial)

    return analyse


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the quickstart."""
    from made.fake_study import write_study

    return write_study(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study with every irregularity that a report must handle."""
    from made import fake_study

    return fake_study.write_study(tmp_path_factory.mktemp("runs"), fake_study.messy())

"""The end of a command: all output is written, and the interpreter exits without unloading torch."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from headtohead.cli import main
from made import case_table
from made.study import TINY

PREPARED = """
import atexit, sys, threading, time
from headtohead.cli import main
from headtohead.cli.__main__ import entry
{setting}
sys.argv = ["h2h", *{words!r}]
entry()
print("the interpreter went on")
"""


def ended(words: list[str], setting: str = "") -> subprocess.CompletedProcess[str]:
    code = PREPARED.format(setting=setting, words=words)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=buffered
    )


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["nonsense"], 2)])
def test_the_exit_code_and_all_output_are_complete(words: list[str], code: int) -> None:
    done = ended(words)
    assert done.returncode == code
    assert ("Commands:" in done.stdout) is (code == 0)
    assert done.stderr.startswith("h2h: unknown command 'nonsense'; known: ") is (code == 2)
    assert "the interpreter went on" not in done.stdout


def test_exit_handlers_run() -> None:
    done = ended(["--help"], "atexit.register(lambda: print('handled'))")
    assert done.stdout.endswith("handled\n")


def test_the_exit_waits_for_running_threads() -> None:
    working = "threading.Thread(target=lambda: (time.sleep(0.5), print('worked'))).start()"
    done = ended(["--help"], working)
    assert (done.returncode, done.stdout.endswith("worked\n")) == (0, True)


DISCARDED = """
import os, signal
class Lock:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
main.callback = lambda **_: [Lock() and None, time.sleep(9)]
"""


def test_ctrl_c_during_a_finaliser_ends_the_command() -> None:
    done = ended(["doctor"], DISCARDED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "h2h: interrupted\n")


SWALLOWED = """
import contextlib, os, signal
def swallow(**_):
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
    time.sleep(9)
main.callback = swallow
"""


def test_ctrl_c_that_a_library_swallows_ends_the_command() -> None:
    done = ended(["doctor"], SWALLOWED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "h2h: interrupted\n")


AT_IMPORT = """
import os, signal
at = {module!r}

def interrupt_once(event, arguments):
    global at
    if event == "import" and arguments[0] == at:
        at = None
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt_once)
"""
IMPORTING = """
import sys
{setting}
from headtohead.cli.__main__ import entry
sys.argv = ["h2h", "plan", "study.yaml"]
entry()
"""
STUDY = yaml.safe_dump(TINY | {"base": TINY["base"] | {"train": {"steps": 100_000}}})
MODULES = [
    "headtohead.cli.program",
    "torch",
    "click",
    "headtohead.errors",
    "headtohead.planning.planner",
    "pydantic",
    "numpy",
]


@case_table("module", MODULES, default=2)
def test_ctrl_c_during_an_import_is_one_line(module: str, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    command = [sys.executable, "-c", IMPORTING.format(setting=AT_IMPORT.format(module=module))]
    environment = os.environ | {"H2H_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "h2h: interrupted\n")


INTERRUPT = "atexit.register(lambda: __import__('os').kill(__import__('os').getpid(), 2))"


def test_ctrl_c_after_the_command_is_one_line() -> None:
    done = ended(["doctor", "--help"], INTERRUPT)
    assert (done.returncode, done.stderr) == (130, "h2h: interrupted\n")


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """Of a command that a script starts in the background."""
    done = ended(
        ["doctor", "--help"], f"import signal; signal.signal(2, signal.SIG_IGN); {INTERRUPT}"
    )
    assert (done.returncode, done.stderr) == (0, "")


BEFORE_HANDLING = {
    "__init__.py",
    "lazy_names.py",
    "cli/__init__.py",
    "cli/__main__.py",
    "cli/interruption.py",
}


def test_little_is_imported_before_ctrl_c_is_handled() -> None:
    code = "import sys, enum; known = {*sys.modules}; import headtohead.cli.__main__; print(*{*sys.modules} - known)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {f"headtohead.{name.removesuffix('.py').replace('/', '.')}" for name in BEFORE_HANDLING}
    ours = {name.removesuffix(".__init__") for name in ours}
    assert {*done.stdout.split()} <= ours | {"signal", "_signal"}


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0])
@pytest.mark.parametrize("entry", ["script", "module"])
def test_ctrl_c_at_any_moment_of_the_start_is_one_line(
    entry: str, delay: float, tmp_path: Path
) -> None:
    """While Python itself starts, and imports the modules up to the entry point, it prints a traceback."""
    script, module = (
        [str(Path(sys.executable).with_name("h2h"))],
        [sys.executable, "-m", "headtohead.cli"],
    )
    (tmp_path / "study.yaml").write_text(STUDY)
    command = [*(script if entry == "script" else module), "run", "study.yaml", "--no-tracking"]
    environment = os.environ | {"H2H_CACHE": str(tmp_path / "cache")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(  # type: ignore[call-overload]
        command, cwd=tmp_path, env=environment, text=True, start_new_session=True, **pipes
    )
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    if process.returncode == 130:
        assert len((output + errors).splitlines()) == 1, output + errors
    else:
        assert delay < 0.5, errors
        assert set(re.findall(r"/headtohead/(\S+)\"", errors)) <= BEFORE_HANDLING, errors


@case_table(
    "error", ["ValueError('two\\nlines')", "EOFError()", "RecursionError('deep')"], default=1
)
def test_an_unexpected_error_is_one_line_with_exit_code_70_and_a_traceback_in_a_file(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = ended(["doctor", error], "main.callback = lambda **_: exec('raise ' + sys.argv[2])")
    assert (done.returncode, done.stdout) == (70, "")
    (log,) = tmp_path.glob("h2h-error-*.log")
    name = error.partition("(")[0]
    pattern = rf"h2h: internal error: [^\n]*{name}[^\n]*; the traceback is in '{log}'\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr
    assert "Traceback (most recent call last)" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_the_traceback_of_an_unexpected_error_is_in_the_given_log_file(tmp_path: Path) -> None:
    log = tmp_path / "h2h.log"
    failing = "from headtohead.cli import doctor; doctor.command.callback = lambda **_: 1 / 0"
    done = ended(["--log-file", str(log), "doctor"], failing)
    assert (done.returncode, done.stdout) == (70, "")
    pattern = rf"h2h: internal error: ZeroDivisionError: division by zero \(.*\); the traceback is in '{log}'\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr
    assert "ZeroDivisionError" in log.read_text()


def test_a_closed_pipe_has_the_exit_code_of_shells() -> None:
    command = [sys.executable, "-m", "headtohead.cli", "doctor", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "--verbos list",
            "h2h: no such option '--verbos'; did you mean '--verbose'? (options: h2h --help)",
        ),
        (
            "judge x.csv --sead 1",
            "h2h: no such option '--sead'; did you mean '--seed'? (options: h2h judge --help)",
        ),
        (
            "plan",
            "h2h: missing argument 'EXPERIMENT'; h2h new-experiment writes an experiment file "
            "(options: h2h plan --help)",
        ),
        (
            "status",
            "h2h: missing argument 'EXPERIMENT'; h2h list prints the experiments (options: h2h status --help)",
        ),
        (
            "show",
            "h2h: missing argument 'RUN'; h2h status EXPERIMENT prints the runs (options: h2h show --help)",
        ),
        (
            "run x.yaml --gpu",
            "h2h: no such option '--gpu'; did you mean '--device'? (options: h2h run --help)",
        ),
        (
            "--set a=1 run x.yaml",
            "h2h: no such option '--set'; type options of a command after its name (options: h2h --help)",
        ),
        (
            "run x.yaml y.yaml",
            "h2h: got unexpected extra argument (y.yaml); name a single experiment file (options: h2h run --help)",
        ),
        (
            "judge x.csv base",
            "h2h: got unexpected extra argument (base); to name the baseline, type --baseline VARIANT "
            "(options: h2h judge --help)",
        ),
        (
            "run --set train.lr 0.1 x.yaml",
            "h2h: --set train.lr: expected path=value, such as model.d_model=64",
        ),
        ("version", "h2h: unknown command 'version'; type h2h --version"),
        (
            "data stats",
            "h2h: missing argument 'DATASET|EXPERIMENT' (options: h2h data stats --help)",
        ),
        (
            "run x.yaml --timeout inf",
            "h2h: invalid value for '--timeout': inf is not a finite number (options: h2h run --help)",
        ),
        (
            "ui --port 70000",
            "h2h: invalid value for '--port': 70000 is not in the range 1<=x<=65535 (options: h2h ui --help)",
        ),
        (
            "clean --runs x",
            "h2h: invalid value for '--runs': 'x' is not a folder (options: h2h clean --help)",
        ),
        (
            "sync --logger wandb --uri x",
            "h2h: --uri is the address of mlflow; leave it out, or add --logger mlflow",
        ),
        ("status /", "h2h: no runs of '/' in 'runs'; start with h2h run FILE"),
    ],
)
def test_a_wrong_option_is_one_line(
    words: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, words.split(), prog_name="h2h")
    assert (result.exit_code, result.output) == (2, f"{line}\n")


REPLACED = """
import os, signal
from headtohead.errors import HeadToHeadError
def replace(**_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
    except BaseException as error:
        raise {error}("the plugin raised KeyboardInterrupt") from error
main.callback = replace
"""


@pytest.mark.parametrize("error", ["RecursionError", "HeadToHeadError"])
def test_an_error_in_place_of_an_interrupt_is_the_interrupt(error: str) -> None:
    """The import of a C extension, and the check of a plugin, can turn KeyboardInterrupt into another exception."""
    done = ended(["doctor"], REPLACED.format(error=error))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "h2h: interrupted\n")

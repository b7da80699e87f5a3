import shutil

import pytest


@pytest.fixture
def diagnose(h2h):
    """Run h2h doctor; return the exit code, and level and text by subject."""

    def diagnose(*arguments):
        code, output = h2h("doctor", *arguments)
        found = [(line[:4].strip(), *line[6:].split(": ", 1)) for line in output.splitlines()]
        return code, {subject: (level, text) for level, subject, text in found}

    return diagnose


def test_a_sound_installation_passes_and_no_file_is_left(diagnose, tmp_path):
    code, found = diagnose()
    assert code == 0
    assert {"python", "packages", "cpu", "plugins", "runs folder", "data cache", "mlflow"} <= set(
        found
    )
    assert "torch" in found["packages"][1]
    assert found["mlflow"][1] == f"'{tmp_path / 'mlflow.db'}' will be created by the first run"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "subject", "text"),
    [
        (("--plugin", "mine.py"), "plugins", "plugin 'mine.py' (file) failed to import"),
        (("--runs", "store/runs"), "mlflow", "is damaged (file is not a database)"),
        (("--runs", "/proc/runs"), "runs folder", "cannot write to '/proc'"),
    ],
)
def test_a_broken_plugin_store_or_folder_fails(diagnose, tmp_path, arguments, subject, text):
    (tmp_path / "mine.py").write_text("1 / 0")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mlflow.db").write_text("not a database, " * 100)
    code, found = diagnose(*arguments)
    assert (code, found[subject][0]) == (1, "FAIL")
    assert text in found[subject][1]


def test_a_server_that_is_down_fails(diagnose, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    code, found = diagnose()
    assert (code, found["mlflow"][0]) == (1, "FAIL")


def test_a_missing_package_fails(diagnose, monkeypatch):
    monkeypatch.setattr("headtohead.cli.doctor.PACKAGES", ("torch", "not-installed"))
    code, found = diagnose()
    assert (code, found["packages"][0]) == (1, "FAIL")


@pytest.mark.parametrize(
    ("free", "code", "level"), [(500 * 1024**2, 0, "WARN"), (1024**2, 1, "FAIL")]
)
def test_a_nearly_full_disk_is_reported(diagnose, monkeypatch, free, code, level):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    ended, found = diagnose()
    assert (ended, found["runs folder"][0]) == (code, level)

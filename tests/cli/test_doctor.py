import pytest
from click.testing import CliRunner

from headtohead.cli import doctor, main
from headtohead.plugins import registry


@pytest.fixture
def h2h(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(registry, "_current", None)

    def h2h(*arguments):
        result = CliRunner().invoke(main, ["doctor", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        lines = dict(line[6:].split(": ", 1) for line in result.output.splitlines())
        levels = {line[6:].split(": ", 1)[0]: line[:4].strip() for line in result.output.splitlines()}
        return result.exit_code, levels, lines

    return h2h


def test_a_sound_installation_passes(h2h, tmp_path):
    code, levels, lines = h2h()
    assert code == 0
    assert {"python", "packages", "cpu", "plugins", "runs folder", "data cache", "mlflow"} <= set(levels)
    assert "torch" in lines["packages"]
    assert lines["mlflow"] == f"'{tmp_path / 'mlflow.db'}' will be created by the first run"


def test_the_doctor_leaves_no_files(h2h, tmp_path):
    h2h()
    assert list(tmp_path.iterdir()) == []


def test_a_broken_plugin_fails(h2h, tmp_path):
    (tmp_path / "mine.py").write_text("1 / 0")
    code, levels, lines = h2h("--plugin", "mine.py")
    assert (code, levels["plugins"]) == (1, "fail")
    assert lines["plugins"].startswith("plugin 'mine.py' (file) failed to import")


def test_a_file_that_is_not_a_store_fails(h2h, tmp_path):
    (tmp_path / "mlflow.db").write_text("not a database, " * 100)
    code, levels, lines = h2h()
    assert (code, levels["mlflow"]) == (1, "fail")
    assert "is not an MLflow store" in lines["mlflow"]


def test_a_server_that_is_down_fails(h2h, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    code, levels, _ = h2h()
    assert (code, levels["mlflow"]) == (1, "fail")


def test_a_package_that_is_too_old_fails(h2h, monkeypatch):
    from importlib import metadata

    monkeypatch.setattr(metadata, "requires", lambda _: ["click>=99", "torch>=2", "x>=1; extra == 'x'"])
    code, levels, lines = h2h()
    assert (code, levels["click"]) == (1, "fail")
    assert ">=99" in lines["click"]
    assert "torch" in lines["packages"]


def test_a_missing_package_fails(h2h, monkeypatch):
    from importlib import metadata

    monkeypatch.setattr(metadata, "requires", lambda _: ["no-such-package-here>=1"])
    code, levels, lines = h2h()
    assert (code, levels["no-such-package-here"]) == (1, "fail")
    assert lines["no-such-package-here"] == ("not installed; run pip install 'no-such-package-here>=1'")


def test_a_version_other_than_the_tested_one_is_a_warning(h2h, monkeypatch, tmp_path):
    (tmp_path / "constraints.txt").write_text("click==0.1\n")
    monkeypatch.setattr(doctor, "__file__", str(tmp_path / "harness" / "headtohead" / "cli" / "doctor.py"))
    code, levels, lines = h2h()
    assert (code, levels["click"]) == (0, "warn")
    assert lines["click"].endswith("is installed, 0.1 was tested")


@pytest.mark.parametrize("name", ["typing-extensions", "Typing.Extensions"])
def test_a_package_is_found_under_every_spelling_of_its_name(h2h, monkeypatch, tmp_path, name):
    from importlib import metadata

    installed = metadata.version("typing_extensions")
    monkeypatch.setattr(metadata, "requires", lambda _: ["typing_extensions>=1"])
    monkeypatch.setattr(doctor, "__file__", str(tmp_path / "a" / "b" / "c" / "doctor.py"))
    (tmp_path / "constraints.txt").write_text(f"{name}==0.1\n")
    code, levels, lines = h2h()
    assert (code, levels["typing_extensions"]) == (0, "warn")
    assert lines["typing_extensions"] == f"{installed} is installed, 0.1 was tested"


def test_a_nearly_full_disk_is_reported(h2h, monkeypatch):
    import shutil

    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=500 * 1024**2))
    code, levels, _ = h2h()
    assert (code, levels["runs folder"]) == (0, "warn")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1024**2))
    code, levels, _ = h2h()
    assert (code, levels["runs folder"]) == (1, "fail")


def test_a_folder_that_cannot_be_written_fails(h2h):
    code, levels, lines = h2h("--runs", "/proc/runs")
    assert (code, levels["runs folder"]) == (1, "fail")
    assert lines["runs folder"].startswith("cannot write to '/proc'")

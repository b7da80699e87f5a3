"""The charts of the saved view and the attention page in a browser, with the oldest and the newest supported MLflow."""

import asyncio
import base64
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from tornado.websocket import websocket_connect

from made import free_port
from made.fake_study import Study, write_study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
# MLflow 3.9 does not run with a later protobuf, which the environment has.
OLDEST = ["mlflow==3.9.0", "mlflow-skinny==3.9.0", "mlflow-tracing==3.9.0", "protobuf<7"]
VARIANTS = ["sinusoidal", "rotary", "none"]
SECONDS = 90.0

MEASURE = """JSON.stringify(Array.from(document.querySelectorAll(".js-plotly-plot")).map(plot => {
  const box = plot.getBoundingClientRect(), count = name => plot.querySelectorAll(name).length;
  const left = text => text.getBoundingClientRect().left, right = text => text.getBoundingClientRect().right;
  const cut = text => left(text) < box.left - 2 || right(text) > box.right + 2;
  const names = Array.from(plot.querySelectorAll("text")).filter(text => /[a-z]{2}/.test(text.textContent));
  const fills = Array.from(plot.querySelectorAll(".bars .point path"), path => getComputedStyle(path).fill);
  return { colours: [...new Set(fills)].length,
    width: box.width, height: box.height, bars: count(".bars .point"), bands: count(".js-fill"),
    cut: names.filter(cut).map(text => text.textContent) };
}))"""


@pytest.fixture(scope="module", params=["newest", "oldest"])
def server(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    h2h_here: Callable[..., Any],
    store_template: Path,
) -> Iterator[tuple[str, str]]:
    """The address of a server with a study, and the id of the study's own run; SIGTERM ends it with its workers."""
    root, environment = tmp_path_factory.mktemp("browser"), {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    if request.param == "oldest":
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(root / "mlflow"),
        ]
        done = subprocess.run([*command, *OLDEST], capture_output=True, text=True, timeout=200)
        if done.returncode:
            pytest.skip(f"MLflow 3.9 cannot be installed: {done.stderr[-200:]}")
        environment["PYTHONPATH"] = str(root / "mlflow")
    write_study(root / "runs", Study(seeds=(1, 2, 3), axes={"positional": VARIANTS}))
    h2h = [sys.executable, "-m", "headtohead.cli"]
    if request.param == "oldest":
        subprocess.run(
            [*h2h, "sync"], cwd=root, env=environment, check=True, capture_output=True, timeout=200
        )
    else:
        shutil.copyfile(store_template, root / "mlflow.db")
        assert h2h_here(root, "sync").returncode == 0
    port = free_port()
    command = [*h2h, "ui", "--no-browser", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert any(line.startswith("Ctrl-C stops the server") for line in process.stdout)
            with closing(sqlite3.connect(root / "mlflow.db")) as store:
                ((own,),) = store.execute("SELECT run_uuid FROM runs WHERE name = 'quickstart'")
            started = psutil.Process(process.pid).children(recursive=True)
            yield f"http://127.0.0.1:{port}", own
            process.terminate()
            assert process.wait(120) == 128 + signal.SIGTERM
            _, left = psutil.wait_procs(started, timeout=30)
            assert left == []
        finally:
            process.terminate()


def look(url: str, width: int, script: str, number: int, picture: Path) -> Any:
    """Open a page until ``script`` returns at least ``number`` elements as JSON; return them and write a picture."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-component-update",
    ]
    command += [
        "--disable-background-networking",
        "--disable-sync",
        f"--user-data-dir={picture.parent}/profile",
    ]
    command += [
        "--remote-debugging-port=0",
        "--remote-allow-origins=*",
        f"--window-size={width},1000",
        "about:blank",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    async def visit(port: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as listed:
            (page,) = [target for target in json.load(listed) if target["type"] == "page"]
        connection = await websocket_connect(page["webSocketDebuggerUrl"], max_message_size=2**28)

        async def call(method: str, **params: Any) -> Any:
            await connection.write_message(
                json.dumps({"id": 1, "method": method, "params": params})
            )
            while (answer := json.loads(str(await connection.read_message()))).get("id") != 1:
                pass
            return answer["result"]

        await call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=1000,
            deviceScaleFactor=1,
            mobile=False,
        )
        await call("Page.enable")
        await call(
            "Page.addScriptToEvaluateOnNewDocument",
            source=f"localStorage.setItem('{PANEL}', 'true')",
        )
        await call("Page.navigate", url=url)
        found, end = [], time.monotonic() + SECONDS
        while len(found) < number and time.monotonic() < end:
            await asyncio.sleep(2)
            found = json.loads(
                (await call("Runtime.evaluate", expression=script))["result"]["value"]
            )
        picture.write_bytes(base64.b64decode((await call("Page.captureScreenshot"))["data"]))
        connection.close()
        while await connection.read_message() is not None:
            pass
        return found

    try:
        assert process.stderr is not None
        (started,) = [next(line for line in process.stderr if "DevTools listening on" in line)]
        return asyncio.run(visit(started.partition("127.0.0.1:")[2].partition("/")[0]))
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


PAGE = """JSON.stringify((() => {
  const [paragraph] = Array.from(document.querySelectorAll("p")).filter(p => p.textContent.includes("Question: "));
  if (!paragraph) return [];
  const at = (x, y) => document.elementFromPoint(x, y);
  const [link] = Array.from(paragraph.querySelectorAll("a")).filter(a => a.textContent.startsWith("attention"));
  const text = paragraph.getBoundingClientRect(), box = link.getClientRects()[0];
  const cut = [];
  for (let outer = paragraph.parentElement; outer; outer = outer.parentElement)
    if (outer.clientWidth && text.right > outer.getBoundingClientRect().left + outer.clientWidth + 1)
      cut.push(outer.tagName + " of " + outer.clientWidth);
  return [{ text: paragraph.textContent, cut, top: text.top,
    is_visible: paragraph.contains(at(text.left + 5, text.top + 9)),
    is_clickable: at(box.left + 5, box.top + 9) === link }];
})())"""
"""The description of a study: its text, the elements that cut it, and whether it and its link are in front."""


PANEL = "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1"
"""Key of the panel that MLflow opens at the first visit and not again."""


@pytest.mark.parametrize(
    "server", ["newest"], indirect=True
)  # the oldest MLflow has no saved views
def test_the_view_opens_with_readable_charts(server: tuple[str, str], tmp_path: Path) -> None:
    query = "workflowType=machine_learning&viewStateShareKey=study&compareRunsMode=CHART"
    url = f"{server[0]}/#/experiments/1/runs?{query}"
    charts = look(url, 1280, MEASURE, 3, tmp_path / "charts.png")
    assert len(charts) >= 3, "no charts: does this MLflow read the saved view?"
    for chart in charts:
        assert chart["width"] > 400
        assert chart["height"] > 180
        assert chart["cut"] == []
    by_variant = [chart for chart in charts if chart["bars"] == chart["colours"] == 3]
    assert len(by_variant) >= 2, "differences and scores, with a colour of its own per variant"
    assert any(chart["bands"] == 3 for chart in charts), "a loss with a band per variant"


@pytest.mark.parametrize("width", [1440, 800])
def test_the_page_of_a_study_shows_its_answer_with_a_link_to_the_attention(
    server: tuple[str, str], tmp_path: Path, width: int
) -> None:
    address, own = server
    url = f"{address}/#/experiments/2/runs/{own}?workflowType=machine_learning"
    (page,) = look(url, width, PAGE, 1, tmp_path / "page.png")
    answer, _, question = page["text"].partition("attention of every variant")
    assert answer.strip().endswith(".")
    assert "exact match" in answer
    assert "Question: Which positional encoding" in question
    assert page["cut"] == []
    assert page["is_visible"]
    assert page["is_clickable"], "MLflow's gradient covers the link"


def test_the_attention_page_opens_in_the_viewer_of_artifacts(
    server: tuple[str, str], tmp_path: Path
) -> None:
    address, own = server
    url = f"{address}/#/experiments/2/runs/{own}/artifacts/attention/probe-0.html"
    script = "JSON.stringify(Array.from(document.querySelectorAll('iframe')).map(frame => frame.srcdoc || frame.src))"
    frames = look(url, 1280, script, 1, tmp_path / "attention.png")
    assert frames

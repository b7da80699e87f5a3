"""Time to log a run to MLflow, and time until a browser shows the list of studies of a store with 10,000 runs.

    python benchmarks/mlflow_page.py runs/quickstart [--uri postgresql+psycopg2://USER@HOST/DB] [--runs N] [--studies N]

Logs the study to a new SQLite store, or to an empty PostgreSQL database, and copies its rows until the store has these
numbers of runs and studies, without histories. A headless Chromium then opens the list of studies, until a row has its
answer. The processor times of server and browser depend less on other programs than the time until the answer appears.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy

from headtohead.tracking.serving import server
from headtohead.tracking.shipping import ship
from headtohead.tracking.store import open_store
from headtohead.tracking.view import link

PORT = 5099
TABLES = ("runs", "tags", "params", "latest_metrics")
FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --window-size=1600,1000"


def copy_runs(uri: str, number: int, studies: int) -> str:
    """Copy the rows of logged runs and studies; return the id of the experiment that lists the studies."""
    client = open_store(uri, create=False).client
    index = client.get_experiment_by_name("headtohead studies").experiment_id
    engine = sqlalchemy.create_engine(uri)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE copies (old VARCHAR(32), new VARCHAR(32))"))
        found = connection.execute(sqlalchemy.text("SELECT run_uuid, experiment_id FROM runs")).all()
        for wanted, known in ((studies, True), (number, False)):
            old = [run for run, experiment in found if (str(experiment) == index) is known]
            rows = [{"old": old[n % len(old)], "new": uuid.uuid4().hex} for n in range(wanted - len(old))]
            if rows:
                connection.execute(sqlalchemy.text("INSERT INTO copies VALUES (:old, :new)"), rows)
        for table in TABLES:
            columns = [column["name"] for column in sqlalchemy.inspect(connection).get_columns(table)]
            values = ["copies.new" if name == "run_uuid" else f"t.{name}" for name in columns]
            insert = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {table} t"
            connection.execute(sqlalchemy.text(f"{insert} JOIN copies ON copies.old = t.run_uuid"))
        connection.execute(sqlalchemy.text("DROP TABLE copies"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sqlalchemy.text("ANALYZE"))
    return str(index)


def processor_seconds(process: int) -> float:
    """Return the processor time of a process, and of its children."""
    tree = [psutil.Process(process), *psutil.Process(process).children(recursive=True)]
    return sum(sum(each.cpu_times()[:4]) for each in tree)


def seconds(call: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return wall time and processor time of a call, and its result."""
    started = time.monotonic(), time.process_time()
    result = call()
    return (time.monotonic() - started[0], time.process_time() - started[1]), result


class Browser:
    """A headless Chromium, controlled through the DevTools protocol on a pipe."""

    def __init__(self, folder: Path) -> None:
        theirs, self.commands = os.pipe()
        self.answers, own = os.pipe()
        command = f'exec "$0" "$@" 3<&{theirs} 4>&{own}'
        browser = shutil.which("chromium") or "google-chrome"
        words = [browser, *FLAGS.split(), "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(["bash", "-c", command, *words], pass_fds=(theirs, own), **quiet)
        self.count, self.buffer, self.session = 0, b"", {}
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}

    def __call__(self, method: str, **parameters: Any) -> Any:
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters, **self.session}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                self.buffer += os.read(self.answers, 1 << 16)
            line, _, self.buffer = self.buffer.partition(b"\0")
            if (answer := json.loads(line)).get("id") == self.count:
                return answer["result"]

    def seconds_until(self, address: str, text: str) -> float:
        """Open a page and return the seconds until it contains a text."""
        self("Page.navigate", url="about:blank")
        started = time.monotonic()
        self("Page.navigate", url=address)
        # textContent needs no layout of the page, which innerText causes at each call.
        condition = f"(document.body ? document.body.textContent : '').includes({json.dumps(text)})"
        while not self("Runtime.evaluate", expression=condition)["result"].get("value"):
            if time.monotonic() > started + 120:
                raise SystemExit(f"'{text}' did not appear at {address}")
            time.sleep(0.1)
        return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--uri")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--visits", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        uri = options.uri or f"sqlite:///{folder}/mlflow.db"
        open_store(uri, create=True)
        study = options.study.resolve()
        os.chdir(folder)
        ship(study, f"sqlite:///{folder}/warm-up.db")  # imports
        first, shipped = seconds(lambda: ship(study, uri).shipped)
        again, _ = seconds(lambda: ship(study, uri))
        each = [1000 * (new - old) / shipped for new, old in zip(first, again, strict=True)]
        print(f"logging: {each[0]:.0f} ms per run, processor {each[1]:.0f} ms ({shipped} runs); ", end="")
        print(f"the study itself: {again[0]:.1f} s, processor {again[1]:.1f} s", flush=True)
        index = copy_runs(uri, options.runs, options.studies)
        (own, *_) = open_store(uri, create=False).runs(index)
        with server(uri, PORT) as served:
            browser = Browser(folder / "browser")
            both, address = (served.pid, browser.process.pid), link(index, f"http://127.0.0.1:{PORT}", index=True)
            try:
                times, spent = [], [processor_seconds(process) for process in both]
                for _ in range(options.visits):
                    times.append(browser.seconds_until(address, own.data.tags["h2h.answer"][:24]))
                spent = [processor_seconds(process) - before for process, before in zip(both, spent, strict=True)]
            finally:
                browser.process.kill()
                browser.process.wait()
        shown = ", ".join(f"{duration:.1f}" for duration in times)
        each = [duration / options.visits for duration in spent]
        print(
            f"list of studies: {shown} s; processor per visit: server {each[0]:.2f} s, browser {each[1]:.2f} s; ",
            end="",
        )
        print(f"load of the machine {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

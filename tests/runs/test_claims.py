"""At most one live process works on a stack, and a dead one's claim is taken over."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headtohead.runs import claims, files
from headtohead.runs.claims import Busy, Claim


def write_claim(folder: Path, **fields: object) -> None:
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "boot": claims.boot_id(),
            "started": claims.psutil.Process().create_time(), "token": "other"}  # fmt: skip
    files.write_json(folder / "claim.json", mine | fields)


def test_a_live_claim_is_respected(tmp_path: Path) -> None:
    Claim(tmp_path).acquire()
    with pytest.raises(Busy, match=f"process {os.getpid()} on"):
        Claim(tmp_path).acquire()


def test_a_released_claim_is_free(tmp_path: Path) -> None:
    first = Claim(tmp_path)
    first.acquire()
    first.release()
    Claim(tmp_path).acquire()


def test_a_claim_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    write_claim(tmp_path, pid=child.pid)
    Claim(tmp_path).acquire()
    assert files.read_json(tmp_path / "claim.json")["pid"] == os.getpid()


def test_a_claim_from_before_a_restart_is_taken_over(tmp_path: Path) -> None:
    write_claim(tmp_path, boot="another start of the machine")
    Claim(tmp_path).acquire()


def test_a_process_number_used_again_is_not_the_holder(tmp_path: Path) -> None:
    write_claim(tmp_path, started=claims.psutil.Process().create_time() - 1000)
    Claim(tmp_path).acquire()


def test_a_claim_of_another_host_holds_while_its_heart_beats(tmp_path: Path) -> None:
    write_claim(tmp_path, host="another")
    with pytest.raises(Busy, match="on another"):
        Claim(tmp_path).acquire()
    silent = time.time() - claims.STALE_SECONDS - 1
    os.utime(tmp_path / "claim.json", (silent, silent))
    Claim(tmp_path).acquire()


def test_a_lost_claim_is_not_released_for_its_new_holder(tmp_path: Path) -> None:
    first = Claim(tmp_path)
    first.acquire()
    write_claim(tmp_path, token="taken over")
    first.release()
    assert files.read_json(tmp_path / "claim.json")["token"] == "taken over"


def _try(folder: Path, queue: multiprocessing.Queue[bool]) -> None:
    try:
        Claim(folder).acquire()
    except Busy:
        queue.put(False)
    else:
        queue.put(True)
        time.sleep(1.0)


def test_of_many_that_find_a_dead_claim_one_gets_it(tmp_path: Path) -> None:
    write_claim(tmp_path, boot="another start of the machine")
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[bool] = context.Queue()
    processes = [context.Process(target=_try, args=(tmp_path, queue)) for _ in range(6)]
    for process in processes:
        process.start()
    won = [queue.get(timeout=20) for _ in processes]
    for process in processes:
        process.join()
    assert sum(won) == 1

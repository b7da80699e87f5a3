"""Time from ``pip install`` of the judge's wheel in an empty environment to its first verdict, and of later verdicts.

    python benchmarks/judge_install.py --wheels FOLDER

FOLDER has the wheels of numpy, scipy, pandas and click; missing ones are downloaded by pip before the clock starts.
Seconds are those of a clock and, since other processes slow it, of the processor. ``additions`` is the processor time
of ten million additions in Python, for a comparison of machines: 0.7 s is usual.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEPENDENCIES = ("numpy", "scipy", "pandas", "click")
VERDICTS = 5
SCORES = """\
variant,seed,accuracy
base,1,0.80
base,2,0.82
base,3,0.81
base,4,0.79
base,5,0.83
base,6,0.80
new,1,0.84
new,2,0.85
new,3,0.86
new,4,0.83
new,5,0.86
new,6,0.85
"""
ROW = "{name:<24}{wall:>10.2f}{processor:>12.2f}"


def timed(step: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a step that starts processes, by the clock and of their processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    step()
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, processor


def call(*command: str | Path, codes: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"{command[0]} failed: {done.stdout}{done.stderr}")


def additions() -> float:
    """Return the processor time of ten million additions, of a global variable as in a script."""
    loop = "total = 0\nfor number in range(10_000_000):\n    total += number"
    _, processor = timed(lambda: call(sys.executable, "-c", loop))
    return processor


def megabytes(folder: Path) -> float:
    """Return the size of the files below a folder."""
    size = 0
    for path in folder.rglob("*"):
        if path.is_file():
            size += path.stat().st_size
    return size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheels", type=Path, required=True, help="folder of downloaded wheels")
    wheels = parser.parse_args().wheels
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:")
    call(*download, "-c", ROOT / "constraints.txt", "-d", wheels, *DEPENDENCIES)
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation")
    call(*build, "--outdir", wheels, ROOT / "harness" / "judge")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scores = folder / "scores.csv"
        scores.write_text(SCORES, encoding="utf-8")
        call(sys.executable, "-m", "venv", folder / "venv")
        programs = folder / "venv" / "bin"
        install = (programs / "pip", "install", "--quiet", "--no-index", "--find-links", wheels)
        judge = (programs / "headtohead-judge", scores, "--baseline", "base")
        times = {"pip install": timed(lambda: call(*install, "headtohead-judge"))}
        times["first verdict"] = timed(lambda: call(*judge))
        later = [timed(lambda: call(*judge)) for _ in range(VERDICTS)]
        times[f"best of {VERDICTS} verdicts"] = min(later)
        (packages,) = (folder / "venv").glob("lib/python3*/site-packages")
        size = megabytes(packages / "headtohead_judge"), megabytes(packages)
    print(f"{'seconds':<24}{'clock':>10}{'processor':>12}")
    for step, (wall, processor) in times.items():
        print(ROW.format(name=step, wall=wall, processor=processor))
    (wheel,) = wheels.glob("headtohead_judge-*.whl")
    print(f"additions: {additions():.2f} s")
    print(
        f"wheel {wheel.stat().st_size / 1e6:.2f} MB, package {size[0]:.1f} MB, environment {size[1]:.0f} MB"
    )


if __name__ == "__main__":
    main()

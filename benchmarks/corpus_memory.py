"""Memory of building a cache of a corpus, and of reading all its windows, for a small corpus and a larger one.

Recordings have the same length in both, so that growth with the corpus is visible.  Each measurement runs in a separate
process, which first does the same with a tiny corpus.  RSS includes the pages of mapped files, which the system can
reclaim; anonymous memory is memory that only the process can free.  Linux only.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.clinical.corpora.synthetic import write_tuab

from gbwatt.clinical.corpora import Corpus, build

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PERIOD = 0.002  # seconds between looks at anonymous memory, of which the system keeps no peak
BATCH = 64


class Memory(NamedTuple):
    """Bytes."""

    before: float
    rss: float
    anonymous: float


def status(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
    return 1024 * float(found.group(1)) if found else float("nan")


def measured(task: Callable[..., None], *arguments: object) -> Memory:
    """Peak memory of this process during a block."""
    highest, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(PERIOD):
            highest[0] = max(highest[0], status("RssAnon"))

    CLEAR.write_text("5")  # reset the high-water mark
    before = status("VmRSS")
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        task(*arguments)
    finally:
        stop.set()
        watcher.join()
    return Memory(before, status("VmHWM"), highest[0])


def make_cache(root: Path, cache: Path) -> None:
    build(root, cache, corpus="tuab", montage="bipolar16")


def read_all(cache: Path, shuffled: bool) -> None:
    """Read every window once, in batches, in random order as in training or in sequence."""
    corpus = Corpus.open(cache)
    for name in ("train", "valid", "eval"):
        part = corpus.part(name)
        order = np.random.default_rng(0).permutation(len(part)) if shuffled else np.arange(len(part))
        for start in range(0, len(part), BATCH):
            part.read(order[start : start + BATCH])


def alone(task: Callable[..., None], *arguments: object) -> Memory:
    """Measure in a new process, which first does the same with a tiny corpus."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(warm_up).result()
        return pool.submit(measured, task, *arguments).result()


def warm_up() -> None:
    """Trigger imports that happen at first use."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_tuab(Path(folder) / "tuab", train=2, evaluation=1, seconds=10)
        make_cache(root, Path(folder) / "cache")
        read_all(Path(folder) / "cache", shuffled=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--subjects", type=int, default=2, help="of each class, in training; half as many are tested")
    parser.add_argument("--factor", type=int, default=10, help="how many times larger the large corpus is")
    parser.add_argument("--minutes", type=float, default=20, help="length of a recording")
    options = parser.parse_args()
    tasks = {
        "building": lambda root, cache: alone(make_cache, root, cache),
        "reading, shuffled": lambda _, cache: alone(read_all, cache, True),
        "reading, in order": lambda _, cache: alone(read_all, cache, False),
    }
    sizes = [options.subjects, options.subjects * options.factor]
    rows: dict[str, list[Memory]] = {name: [] for name in tasks}
    told = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            root, cache = Path(folder) / f"tuab{size}", Path(folder) / f"cache{size}"
            write_tuab(root, train=size, evaluation=max(size // 2, 1), seconds=60 * options.minutes)
            for name, task in tasks.items():
                rows[name].append(task(root, cache))
            told.append(_told(root, cache))
    print(_table(rows, told))


def _told(root: Path, cache: Path) -> str:
    corpus = Corpus.open(cache)
    edf = sum(file.stat().st_size for file in root.rglob("*.edf"))
    windows = sum(recording.n_bytes for recording in corpus.recordings)
    return f"{len(corpus.recordings)} recordings, {edf / 1e6:.0f} MB of EDF, {windows / 1e6:.0f} MB of windows"


def _table(rows: dict[str, list[Memory]], told: list[str]) -> str:
    lines = [f"| peak in MB | {told[0]} | {told[1]} | ratio |", "| --- | --- | --- | --- |"]
    for name, (small, large) in rows.items():
        for field, what in (("rss", "RSS"), ("anonymous", "anonymous")):
            values = [getattr(memory, field) for memory in (small, large)]
            lines.append(
                f"| {name}: {what} | {values[0] / 1e6:.0f} | {values[1] / 1e6:.0f} | {values[1] / values[0]:.2f} |"
            )
        lines.append(f"| {name}: RSS before | {small.before / 1e6:.0f} | {large.before / 1e6:.0f} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

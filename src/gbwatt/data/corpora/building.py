"""Building a cache of windows: what is to do, who does it, and what is written down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gbwatt
from gbwatt import checks
from gbwatt.data.corpora import manifest, windows
from gbwatt.data.corpora.caching import Job, outcomes, remove_temporaries
from gbwatt.data.corpora.layout import Layout, corpus_folder, find_layout, find_recordings
from gbwatt.data.corpora.montages import MONTAGES, Montage
from gbwatt.data.corpora.planning import Plan, plan
from gbwatt.data.corpora.problems import NO_DAMAGE
from gbwatt.data.corpora.records import Cached, Entry, Skipped


@dataclass(frozen=True)
class Progress:
    """How far a build is: recordings done by this call, of all it has to do, and the last one."""

    done: int
    total: int
    entry: Entry


@dataclass(frozen=True)
class Built:
    """What a build leaves.

    Attributes
    ----------
    cache : Path
    new : int
        Recordings that this call cached.
    n_recordings, n_windows : int
        What the cache has in all.
    skipped : tuple of Skipped
        All recordings that are not in it.
    """

    cache: Path
    new: int
    n_recordings: int
    n_windows: int
    skipped: tuple[Skipped, ...]

    @property
    def skipped_kinds(self) -> dict[str, int]:
        """How many recordings were skipped, by kind."""
        return dict(Counter(entry.kind for entry in self.skipped).most_common())

    @property
    def damaged(self) -> tuple[Skipped, ...]:
        """Those that were skipped because something is wrong with them."""
        return tuple(entry for entry in self.skipped if entry.kind not in NO_DAMAGE)


def build(
    root: str | Path,
    cache: str | Path,
    *,
    corpus: str,
    montage: str = "referential23",
    notch: float = 60.0,
    jobs: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
) -> Built:
    """Cut a corpus into windows and keep them on disk; go on where an earlier call was stopped.

    A recording is in memory at a time for each of the ``jobs``, the corpus never.  Recordings that cannot be used are
    skipped and listed in the manifest with a kind and a reason.  A second call does what is missing or has changed.

    Parameters
    ----------
    root : path
        The corpus as downloaded: its folder, a version in it, or the folder ``edf``.
    cache : path
        Folder for the windows; a new one, or one that was built with the same settings.
    corpus : "tuab" or "tuev"
    montage : "referential23" or "bipolar16"
        Channels of the windows.
    notch : float
        Frequency of the mains that is filtered out, in Hz.
    jobs : int
        Processes; 0 for one a core.
    on_progress : callable, optional
        Is called in this process after each recording.

    Returns
    -------
    Built

    Raises
    ------
    CacheError
        If the cache cannot be written or has other settings.
    DataError, MissingFileError
        If the root does not exist or does not have the folders of the corpus.
    """
    layout = find_layout(corpus)
    checks.one_of("montage", montage, tuple(MONTAGES))
    checks.at_least("jobs", jobs, 0)
    header = settings(layout, MONTAGES[montage], notch)
    folder, target = corpus_folder(root, layout), Path(cache).expanduser()
    sources, strange = find_recordings(folder, layout)
    with manifest.writing(target, header) as writer:
        remove_temporaries(target)
        work = plan(folder, target, sources, strange, writer.manifest.entries)
        tasks = [Job(folder, target, source, corpus, montage, notch) for source in work.todo]
        new = 0
        if work or not writer.manifest.finished:
            writer.mark(manifest.BEGIN)
            _leave_out(writer, target, work)
            new = _carry_out(writer, target, tasks, jobs, on_progress)
            writer.mark(manifest.END)
        return _built(target, new, writer.manifest.entries.values())


def _leave_out(writer: manifest.Writer, cache: Path, work: Plan) -> None:
    for entry in work.changed:
        _replace(writer, cache, entry)
    for path in work.forgotten:
        writer.forget(path)


def _carry_out(
    writer: manifest.Writer, cache: Path, tasks: list[Job], jobs: int, on_progress: Callable[[Progress], None] | None
) -> int:
    """Read recordings and write down what becomes of them; how many were cached."""
    new = 0
    try:
        with closing(outcomes(tasks, jobs)) as entries:
            for done, entry in enumerate(entries, 1):
                _replace(writer, cache, entry)
                new += isinstance(entry, Cached)
                if on_progress is not None:
                    on_progress(Progress(done, len(tasks), entry))
    finally:  # after an interrupt, what processes that were ended had begun
        remove_temporaries(cache)
    return new


def settings(layout: Layout, montage: Montage, notch: float) -> dict[str, Any]:
    """The header of a manifest: all that the windows depend on, and who made them."""
    return {
        "format": manifest.FORMAT,
        "gbwatt": gbwatt.__version__,
        "corpus": layout.name,
        "montage": montage.name,
        "ch_names": list(montage.ch_names),
        "sfreq": windows.SFREQ,
        "unit": "µV",
        "n_times": windows.n_times(layout),
        "window": windows.rule(layout),
        "class_names": list(layout.class_names),
        "steps": windows.preprocessing(notch).records(),
    }


def _built(cache: Path, new: int, entries: Iterable[Entry]) -> Built:
    entries = sorted(entries, key=lambda entry: entry.path)
    cached = [entry for entry in entries if isinstance(entry, Cached)]
    skipped = tuple(entry for entry in entries if isinstance(entry, Skipped))
    return Built(cache, new, len(cached), sum(entry.n_windows for entry in cached), skipped)


def _replace(writer: manifest.Writer, cache: Path, entry: Entry) -> None:
    """Write down what became of a recording; windows that it had and has no more are deleted."""
    old = writer.manifest.entries.get(entry.path)
    writer.add(entry)
    if isinstance(old, Cached) and not isinstance(entry, Cached):
        (cache / old.file).unlink(missing_ok=True)

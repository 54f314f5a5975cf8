"""``gbwatt corpus``: clinical corpora cut into windows on disk, and what is in such a cache."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from gbwatt.cli.options import AsJson, print_json
from gbwatt.clinical.corpora import KINDS, Built, Corpus, Progress, Skipped
from gbwatt.clinical.corpora import build as build_cache
from gbwatt.clinical.corpora.manifest import NAME
from gbwatt.clinical.corpora.reading import PARTS
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.errors import ParameterError

app = typer.Typer(help="Clinical corpora, TUAB and TUEV: windows on disk.", no_args_is_help=True)

#: Exit code if recordings are damaged; the others are in the cache.
SOME_DAMAGED = 3
#: Recordings of a kind that are shown one by one.
SHOWN = 5
#: Lines about a whole build, where there is no terminal.
LINES = 10

Cache = Annotated[Path, typer.Argument(help="Folder of the windows.")]


@app.command()
def build(
    root: Annotated[Path, typer.Argument(help="The corpus as downloaded: its folder, a version, or its edf folder.")],
    cache: Cache,
    corpus: Annotated[str, typer.Option(help="tuab or tuev.")],
    montage: Annotated[
        str, typer.Option(help="referential23, for LaBraM and BIOT, or bipolar16, for BIOT.")
    ] = "referential23",
    notch: Annotated[float, typer.Option(help="Frequency of the mains in Hz.")] = 60.0,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one a core.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Cut a corpus into windows; stop and go on whenever you like."""
    console = Console(stderr=as_json)
    options: dict[str, Any] = {"corpus": corpus, "montage": montage, "notch": notch, "jobs": jobs}
    built = _work(console, root, cache, options)
    if as_json:
        print_json(_document(built))
    else:
        _conclude(console, built)
    if built.damaged:
        raise typer.Exit(SOME_DAMAGED)


def _work(console: Console, root: Path, cache: Path, options: dict[str, Any]) -> Built:
    """Build under a progress bar, or with a line now and then; Ctrl-C ends it, with what is done in the cache."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = console.is_terminal
    with Bar(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("recordings", total=None)

        def watch(progress: Progress) -> None:
            bar.update(task, completed=progress.done, total=progress.total)
            if isinstance(progress.entry, Skipped):
                console.print(_line(progress.entry), highlight=False, markup=False, soft_wrap=True)
            if not shown and progress.done % -(-progress.total // LINES) == 0:
                console.print(f"{progress.done} of {progress.total} recordings", highlight=False)

        try:
            return build_cache(root, cache, **options, on_progress=watch)
        except KeyboardInterrupt:
            bar.stop()
            done, total = bar.tasks[0].completed, bar.tasks[0].total
            left = "" if total is None else f", {total - done:.0f} are left"
            console.print(f"Stopped. {done:.0f} recordings were done{left}; the same command goes on.")
            raise


def _line(entry: Skipped) -> str:
    return f"skipped ({entry.kind}): {entry.path}: {entry.reason}"


def _document(built: Built) -> dict[str, Any]:
    return {
        "cache": str(built.cache),
        "new": built.new,
        "recordings": built.n_recordings,
        "windows": built.n_windows,
        "skipped": built.skipped_kinds,
        "list": str(built.cache / NAME),
    }


def _conclude(console: Console, built: Built) -> None:
    console.print(
        f"{built.n_recordings} recordings are cached, {built.new} of them by this call: {built.n_windows} windows.",
        highlight=False,
    )
    if built.skipped:
        console.print(_skipped_table(built.skipped))
        where = f"{len(built.skipped)} recordings were skipped; the list with reasons is in {built.cache / NAME}"
        console.print(where, highlight=False, markup=False, soft_wrap=True)
    words = shlex.join(["gbwatt", "corpus", "describe", str(built.cache)])
    console.print(f"Next: {words}", highlight=False, markup=False, soft_wrap=True)


def _skipped_table(skipped: Sequence[Skipped]) -> Table:
    table = Table("skipped", "recordings", "what it means", title="Not in the cache")
    for kind, own in _by_kind(skipped).items():
        table.add_row(kind, str(len(own)), KINDS[kind])
    return table


def _by_kind(skipped: Sequence[Skipped]) -> dict[str, list[Skipped]]:
    groups: dict[str, list[Skipped]] = {}
    for entry in skipped:
        groups.setdefault(entry.kind, []).append(entry)
    return {kind: groups[kind] for kind in KINDS if kind in groups}


# ---- what is there


@app.command()
def describe(
    cache: Cache,
    valid_fraction: Annotated[float, typer.Option(help="Share of training subjects for validation.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Which subjects these are.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Parts, subjects and windows per class of a cache, and what was skipped and why."""
    if not 0 <= valid_fraction < 1:
        raise ParameterError(f"valid_fraction={valid_fraction} must be 0 or more, and below 1.")
    corpus = Corpus.open(cache)
    document = _description(corpus, valid_fraction, seed)
    if as_json:
        print_json(document)
        return
    console = Console()
    console.print(repr(corpus), highlight=False, markup=False, soft_wrap=True)
    for step in str(Preprocessing.from_records(corpus.header["steps"])).splitlines():
        console.print(f"  {step}", highlight=False, markup=False)
    table = Table("part", "recordings", "subjects", "windows", *corpus.class_names, title="Windows")
    for name, part in document["parts"].items():
        counts = (part["recordings"], part["subjects"], part["windows"], *part["classes"].values())
        table.add_row(name, *map(str, counts))
    console.print(table)
    for note in document["notes"]:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    _print_skipped(console, corpus)


def _description(corpus: Corpus, valid_fraction: float, seed: int) -> dict[str, Any]:
    parts, notes = {}, []
    for name in PARTS:
        try:
            parts[name] = _part(corpus, name, valid_fraction, seed)
        except ParameterError as error:
            notes.append(str(error))
    return {
        "cache": str(corpus.cache),
        "corpus": corpus.name,
        "montage": corpus.montage,
        "ch_names": list(corpus.ch_names),
        "sfreq": corpus.sfreq,
        "n_times": corpus.n_times,
        "steps": corpus.header["steps"],
        "window": corpus.header["window"],
        "bytes": sum(recording.n_bytes for recording in corpus.recordings),
        "fingerprint": corpus.fingerprint,
        "parts": parts,
        "notes": notes,
        "skipped": [{"path": e.path, "kind": e.kind, "reason": e.reason} for e in corpus.skipped],
    }


def _part(corpus: Corpus, name: str, valid_fraction: float, seed: int) -> dict[str, Any]:
    part = corpus.part(name, valid_fraction, seed)
    counts = np.bincount(part.labels, minlength=len(corpus.class_names)).tolist()
    return {
        "recordings": len(part.recordings),
        "subjects": len({recording.subject for recording in part.recordings}),
        "windows": len(part),
        "classes": dict(zip(corpus.class_names, counts, strict=True)),
    }


def _print_skipped(console: Console, corpus: Corpus) -> None:
    if not corpus.skipped:
        console.print("No recording was skipped.", highlight=False)
        return
    console.print(_skipped_table(corpus.skipped))
    for own in _by_kind(corpus.skipped).values():
        for entry in own[:SHOWN]:
            console.print(_line(entry), highlight=False, markup=False, soft_wrap=True)
        if len(own) > SHOWN:
            more = f"  … and {len(own) - SHOWN} more ({own[0].kind}), in {corpus.cache / NAME}"
            console.print(more, highlight=False, markup=False, soft_wrap=True)


@app.command()
def check(cache: Cache, as_json: AsJson = False) -> None:
    """Read all of a cache, and compare every file with its hash in the manifest."""
    corpus = Corpus.open(cache)
    corpus.verify()
    if as_json:
        print_json({"cache": str(cache), "recordings": len(corpus.recordings), "fingerprint": corpus.fingerprint})
        return
    said = f"{len(corpus.recordings)} files are as the manifest says; fingerprint {corpus.fingerprint[:16]}"
    Console().print(said, highlight=False)

"""``gbwatt corpus``: build, describe and check a cache of windows of a clinical corpus."""

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
from gbwatt.clinical.corpora import KINDS, BuildSummary, Corpus, Progress, SkippedRecording
from gbwatt.clinical.corpora import build as build_cache
from gbwatt.clinical.corpora.cache import MANIFEST, PARTS
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.errors import ParameterError

app = typer.Typer(help="Build, describe and check caches of the clinical corpora TUAB and TUEV.", no_args_is_help=True)

#: Exit code if some recordings are damaged; the others are in the cache.
SOME_DAMAGED = 3
#: Number of skipped recordings of each kind that are listed.
SHOWN = 5
#: Progress lines of a build without a terminal.
LINES = 10

Cache = Annotated[Path, typer.Argument(help="Folder of the cache.")]


@app.command()
def build(
    root: Annotated[Path, typer.Argument(help="The corpus as downloaded: its folder, that of a version, or edf.")],
    cache: Cache,
    corpus: Annotated[str, typer.Option(help="tuab or tuev.")],
    montage: Annotated[
        str, typer.Option(help="Channels: referential23 (LaBraM and BIOT) or bipolar16 (BIOT).")
    ] = "referential23",
    notch: Annotated[float, typer.Option(help="Mains frequency to filter out, in Hz.")] = 60.0,
    jobs: Annotated[int, typer.Option(help="Number of processes; 0: one per core.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Cut a corpus into windows on disk.  The same command resumes an interrupted build."""
    console = Console(stderr=as_json)
    options: dict[str, Any] = {"corpus": corpus, "montage": montage, "notch": notch, "jobs": jobs}
    built = _build_with_progress(console, root, cache, options)
    if as_json:
        print_json(_summary_document(built))
    else:
        _print_summary(console, built)
    if built.damaged:
        raise typer.Exit(SOME_DAMAGED)


def _build_with_progress(console: Console, root: Path, cache: Path, options: dict[str, Any]) -> BuildSummary:
    """Build a cache with a progress bar or, without a terminal, progress lines; ``options`` are those of ``build``."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = console.is_terminal
    with Bar(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("recordings", total=None)

        def on_progress(progress: Progress) -> None:
            """Update the bar, and print skipped recordings and progress lines."""
            bar.update(task, completed=progress.done, total=progress.total)
            if isinstance(progress.entry, SkippedRecording):
                console.print(_skipped_line(progress.entry), highlight=False, markup=False, soft_wrap=True)
            if not shown and progress.done % -(-progress.total // LINES) == 0:
                console.print(f"{progress.done} of {progress.total} recordings", highlight=False)

        try:
            return build_cache(root, cache, **options, on_progress=on_progress)
        except KeyboardInterrupt:
            bar.stop()
            done, total = bar.tasks[0].completed, bar.tasks[0].total
            left = "" if total is None else f", {total - done:.0f} are left"
            console.print(f"Interrupted. {done:.0f} recordings are done{left}; the same command resumes.")
            raise


def _skipped_line(entry: SkippedRecording) -> str:
    """Return a line on a skipped recording, with the reason."""
    return f"skipped ({entry.kind}): {entry.path}: {entry.reason}"


def _summary_document(built: BuildSummary) -> dict[str, Any]:
    """Return the JSON document of a build."""
    return {
        "cache": str(built.cache),
        "new": built.new,
        "recordings": built.n_recordings,
        "windows": built.n_windows,
        "skipped": built.skipped_kinds,
        "list": str(built.cache / MANIFEST),
    }


def _print_summary(console: Console, built: BuildSummary) -> None:
    """Print the result of a build, the skipped recordings, and the next command."""
    console.print(
        f"{built.n_recordings} recordings are cached, {built.new} of them new: {built.n_windows} windows.",
        highlight=False,
    )
    if built.skipped:
        console.print(_skipped_table(built.skipped))
        message = f"{len(built.skipped)} recordings were skipped; {built.cache / MANIFEST} lists them with reasons"
        console.print(message, highlight=False, markup=False, soft_wrap=True)
    command = shlex.join(["gbwatt", "corpus", "describe", str(built.cache)])
    console.print(f"Next: {command}", highlight=False, markup=False, soft_wrap=True)


def _skipped_table(skipped: Sequence[SkippedRecording]) -> Table:
    """Return a table of the kinds of skipped recordings, with their number and meaning."""
    table = Table("skipped", "recordings", "meaning", title="Not in the cache")
    for kind, recordings in _by_kind(skipped).items():
        table.add_row(kind, str(len(recordings)), KINDS[kind])
    return table


def _by_kind(skipped: Sequence[SkippedRecording]) -> dict[str, list[SkippedRecording]]:
    """Group skipped recordings by kind, in the order of ``KINDS``."""
    groups: dict[str, list[SkippedRecording]] = {}
    for entry in skipped:
        groups.setdefault(entry.kind, []).append(entry)
    return {kind: groups[kind] for kind in KINDS if kind in groups}


# ---- description


@app.command()
def describe(
    cache: Cache,
    valid_fraction: Annotated[float, typer.Option(help="Fraction of the training subjects used for validation.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of validation subjects.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the parts, subjects and windows per class of a cache, and the skipped recordings with reasons."""
    if not 0 <= valid_fraction < 1:
        raise ParameterError(f"valid_fraction={valid_fraction} must be at least 0 and below 1.")
    corpus = Corpus.open(cache)
    document = _description_document(corpus, valid_fraction, seed)
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


def _description_document(corpus: Corpus, valid_fraction: float, seed: int) -> dict[str, Any]:
    """Return the JSON document on a cache; parts that cannot be made, with the reason in ``notes``, are left out."""
    parts, notes = {}, []
    for name in PARTS:
        try:
            parts[name] = _describe_part(corpus, name, valid_fraction, seed)
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


def _describe_part(corpus: Corpus, name: str, valid_fraction: float, seed: int) -> dict[str, Any]:
    """Return the numbers of recordings, subjects and windows of a part, and of windows per class."""
    part = corpus.part(name, valid_fraction, seed)
    counts = np.bincount(part.labels, minlength=len(corpus.class_names)).tolist()
    return {
        "recordings": len(part.recordings),
        "subjects": len({recording.subject for recording in part.recordings}),
        "windows": len(part),
        "classes": dict(zip(corpus.class_names, counts, strict=True)),
    }


def _print_skipped(console: Console, corpus: Corpus) -> None:
    """Print a table of skipped recordings, and the first recordings of each kind with reasons."""
    if not corpus.skipped:
        console.print("No recording was skipped.", highlight=False)
        return
    console.print(_skipped_table(corpus.skipped))
    for recordings in _by_kind(corpus.skipped).values():
        for entry in recordings[:SHOWN]:
            console.print(_skipped_line(entry), highlight=False, markup=False, soft_wrap=True)
        if len(recordings) > SHOWN:
            more = f"  … and {len(recordings) - SHOWN} more ({recordings[0].kind}), in {corpus.cache / MANIFEST}"
            console.print(more, highlight=False, markup=False, soft_wrap=True)


@app.command()
def check(cache: Cache, as_json: AsJson = False) -> None:
    """Compare every file of a cache with its hash in the manifest."""
    corpus = Corpus.open(cache)
    corpus.verify()
    if as_json:
        print_json({"cache": str(cache), "recordings": len(corpus.recordings), "fingerprint": corpus.fingerprint})
        return
    message = f"{len(corpus.recordings)} files match the manifest; fingerprint {corpus.fingerprint[:16]}"
    Console().print(message, highlight=False)

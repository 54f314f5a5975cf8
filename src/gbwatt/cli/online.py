"""``gbwatt online`` decodes a stream of an amplifier, and ``gbwatt replay`` plays a recording as such a stream."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gbwatt.cli.options import ModelFolder, Threads, require_free, use_threads
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.online import Decision
    from gbwatt.online.session import Session

#: Width of the bar of a probability, in characters.
_BAR = 30


def online(
    folder: ModelFolder,
    stream: Annotated[str, typer.Option(help="Name of the LSL stream of EEG samples.")],
    markers: Annotated[
        str | None, typer.Option(help="Name of the LSL stream of markers; needed to classify windows at events.")
    ] = None,
    hop: Annotated[
        float | None,
        typer.Option(
            help="Classify sliding windows, which begin every HOP seconds; with --markers, the interval between the "
            "windows of an event."
        ),
    ] = None,
    event: Annotated[
        list[str] | None, typer.Option(help="Classify windows at markers of this name only; repeatable. Default: all.")
    ] = None,
    tmin: Annotated[
        float | None, typer.Option(help="Start of the window in seconds after the marker; default: as in training.")
    ] = None,
    windows: Annotated[int, typer.Option(help="Number of successive windows whose evidence is combined.", min=1)] = 1,
    weight: Annotated[
        float, typer.Option(help="Weight of the combined evidence: 1 for independent windows, less if they overlap.")
    ] = 1.0,
    threshold: Annotated[
        float, typer.Option(help="Smallest probability of a decision; below, there is none.", min=0, max=1)
    ] = 0.0,
    group: Annotated[
        str | None,
        typer.Option(help="Known subject or session of the stream, for models with alignment or domain normalisation."),
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="For these models: estimate alignment and statistics from the stream.")
    ] = False,
    unit: Annotated[
        str | None, typer.Option(help="Unit of the samples: V, mV, µV or nV; default: that of the stream, or µV.")
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option(help="Name of a channel in the model, e.g. 'EEG 1=C3'; repeatable.")
    ] = None,
    resample: Annotated[
        bool, typer.Option("--resample", help="Accept another sampling rate than that of the training data.")
    ] = False,
    output: Annotated[str | None, typer.Option(help="Send decisions as an LSL stream of this name.")] = None,
    record: Annotated[Path | None, typer.Option(help="Write decisions to this CSV file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    duration: Annotated[
        float | None, typer.Option(help="Stop after this many seconds; default: at Ctrl-C.", min=0)
    ] = None,
    timeout: Annotated[float, typer.Option(help="Number of seconds to wait for the streams.", min=0.1)] = 10.0,
    threads: Threads = None,
) -> None:
    """Decode a stream of the Lab Streaming Layer (LSL) with a saved model.

    The model must have been trained with causal steps, such as --preprocess "bandpass=8-30,causal". Ctrl-C stops.
    """
    if hop is None and markers is None:
        raise ParameterError("markers and hop are both missing: give --hop 0.5 for sliding windows, or --markers NAME.")
    if event and markers is None:
        raise ParameterError("event: give --markers NAME, the stream with the events.")
    if record is not None:
        require_free(record, kind="table", force=force)
    from gbwatt.online import Evidence, OnlineDecoder
    from gbwatt.online.lsl import DecisionOutlet, StreamReader
    from gbwatt.online.session import Session, decision_log

    use_threads(threads or 1)
    console = Console(stderr=True, soft_wrap=True)
    reader = StreamReader(stream, markers, timeout=timeout)
    if unit is None and reader.unit is None:
        console.print(f"stream {stream!r} does not say its unit; µV is assumed (--unit).", highlight=False)
    decoder = OnlineDecoder(
        folder,
        reader.sfreq,
        reader.ch_names,
        unit=unit or reader.unit or "µV",
        hop=hop,
        events=event or (None if markers is None else "all"),
        tmin=tmin,
        rename=_renamed(rename or []),
        resample=resample,
        group=group,
        adapt=adapt,
        evidence=Evidence(windows, weight, threshold),
    )
    with ExitStack() as stack:
        sinks: list[Callable[..., None]] = []
        if record is not None:
            sinks.append(stack.enter_context(decision_log(record, decoder.class_names)))
        if output is not None:
            outlet = DecisionOutlet(output, decoder.class_names)
            sinks.append(lambda decision, _: outlet.send(decision))

        def deliver(decision: Decision, latency: float) -> None:
            """Write and send a decision."""
            for sink in sinks:
                sink(decision, latency)

        session = Session(decoder, reader, deliver)
        live = stack.enter_context(Live(console=console, refresh_per_second=5, transient=True))
        with _stoppable():
            session.run(duration, lambda: live.update(_display(session)))
        reader.close()
    console.print(_summary(session), highlight=False)


def replay(
    file: Annotated[Path, typer.Argument(help="Recording in a format that MNE reads, or .npz file of trials.")],
    name: Annotated[str, typer.Option(help="Name of the LSL stream; that of the markers is NAME-markers.")] = "replay",
    chunk: Annotated[int, typer.Option(help="Number of samples that are sent at a time.", min=1)] = 10,
    speed: Annotated[float, typer.Option(help="1 for real time, 2 for twice as fast.", min=0.01)] = 1.0,
    wait: Annotated[bool, typer.Option("--wait", help="Begin when a program listens to both streams.")] = False,
    repeat: Annotated[bool, typer.Option("--repeat", help="Begin again at the end, until Ctrl-C.")] = False,
) -> None:
    """Play a recording as a stream of the Lab Streaming Layer (LSL), with its annotations as markers."""
    from gbwatt.online.replay import Playback, Player

    playback = Playback.open(file)
    player = Player(playback, name, chunk=chunk, speed=speed)
    console = Console(stderr=True, soft_wrap=True)
    seconds = playback.samples.shape[1] / playback.sfreq
    console.print(
        f"{name}: {len(playback.ch_names)} channels at {playback.sfreq:g} Hz, {seconds:.0f} s; {player.marker_name}: "
        f"{len(playback.events)} events",
        highlight=False,
    )
    with _stoppable():
        if wait:
            player.wait()
        player.play()
        while repeat:
            player.play()


@contextmanager
def _stoppable() -> Iterator[None]:
    """Context manager that ends without an error at Ctrl-C, or when the process is asked to terminate."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _renamed(texts: list[str]) -> dict[str, str]:
    """Parse names of channels such as "EEG 1=C3"."""
    names = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise ParameterError(f"rename={text!r} is not of the form NAME IN STREAM=NAME IN MODEL, e.g. 'EEG 1=C3'.")
        names[old] = new
    return names


def _display(session: Session) -> Table:
    """Return the live display: probabilities of the last decision, latency and state of the stream."""
    table = Table.grid(padding=(0, 1))
    last, counts = session.last, session.decoder.counts
    if last is not None:
        for label, p in zip(session.decoder.class_names, last.probabilities, strict=True):
            chosen = "bold green" if label == last.label else ""
            table.add_row(label, "█" * round(_BAR * p), f"{p:.2f}", style=chosen)
        table.add_row("problems", "; ".join(last.problems) or "none", "")
    state = "connected" if session.reader.connected else "the stream has gone away, searching"
    table.add_row("stream", state, "")
    table.add_row("latency", _latencies(session), "")
    table.add_row("samples", f"{counts.samples}, {counts.gaps} gaps, {session.reader.reconnections} reconnections", "")
    table.add_row("decisions", f"{counts.decisions}, {counts.unreliable} unreliable, {counts.skipped} skipped", "")
    return table


def _latencies(session: Session) -> str:
    """Return the median and the 95th percentile of recent latencies as text."""
    if not session.latencies:
        return "no decision yet"
    median, high = 1e3 * np.percentile(session.latencies, [50, 95])
    return f"{median:.1f} ms (95 % below {high:.1f} ms)"


def _summary(session: Session) -> str:
    """Return lines on what happened, for the end."""
    counts = session.decoder.counts
    return (
        f"{counts.decisions} decisions, {counts.unreliable} of them unreliable, {counts.skipped} windows skipped; "
        f"{counts.samples} samples, {counts.gaps} gaps, {counts.lost_events} events without a decision, "
        f"{session.reader.reconnections} reconnections; latency {_latencies(session)}."
    )

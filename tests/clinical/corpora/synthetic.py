"""Corpora in the layout of the official ones, as real EDF and annotation files, with classes that can be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import edfio
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# fmt: off
ELECTRODES = (
    "FP1", "FP2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2", "F7", "F8",
    "T3", "T4", "T5", "T6", "A1", "A2", "FZ", "CZ", "PZ", "T1", "T2",
)
# fmt: on
LABELS = tuple(f"EEG {name}-REF" for name in ELECTRODES)
EVENTS = ("spsw", "gped", "pled", "eyem", "artf", "bckg")
SLOT = 5.0  # seconds of a recording for each event, which is in the middle of them
RANGE = 5000.0  # µV


def write_tuab(
    root: Path,
    *,
    train: int = 4,
    evaluation: int = 2,
    recordings: int = 1,
    seconds: float = 40.0,
    sfreq: float = 250.0,
    seed: int = 0,
) -> Path:
    """Normal recordings have a posterior alpha rhythm, abnormal ones slow waves; so many subjects of each class."""
    numbers = count()
    for split, n_subjects in (("train", train), ("eval", evaluation)):
        for name in ("normal", "abnormal"):
            for _ in range(n_subjects):
                number = next(numbers)
                for session in range(1, recordings + 1):
                    rng = np.random.default_rng([seed, number, session])
                    x = background(rng, seconds, sfreq) + state(rng, name, seconds, sfreq)
                    file = f"{subject_name(number)}_s{session:03d}_t000.edf"
                    write_edf(root / "edf" / split / name / "01_tcp_ar" / file, x, sfreq)
    return root


def write_tuev(
    root: Path,
    *,
    train: int = 6,
    evaluation: int = 3,
    seconds: float = 30.0,
    events: int = 6,
    sfreq: float = 250.0,
    seed: int = 0,
    annotations: str = "rec",
) -> Path:
    """Each class has a waveform of its own; a training recording has them in turn, one for evaluation has its own.

    Two recordings of each subject of the evaluation part: with three of these, every class is there.  ``annotations``
    is the form of the annotation files, "rec" or "csv".
    """
    for number in range(train):
        subject = subject_name(number)
        kinds = [(number + place) % len(EVENTS) for place in range(events)]
        file = root / "edf" / "train" / subject / f"{subject}_00000001.edf"
        _write_events(file, kinds, seconds, sfreq, np.random.default_rng([seed, 0, number]), annotations)
    for number in range(evaluation):
        for kind in (2 * number % len(EVENTS), (2 * number + 1) % len(EVENTS)):
            file = root / "edf" / "eval" / f"{number:03d}" / f"{EVENTS[kind]}_{number:03d}_a_.edf"
            rng = np.random.default_rng([seed, 1, number, kind])
            _write_events(file, [kind] * events, seconds, sfreq, rng, annotations)
    return root


def _write_events(
    file: Path, kinds: Sequence[int], seconds: float, sfreq: float, rng: np.random.Generator, annotations: str
) -> None:
    if seconds < SLOT * len(kinds):
        raise ValueError(f"{len(kinds)} events need {SLOT * len(kinds):g} s, not {seconds:g}.")
    x = background(rng, seconds, sfreq)
    size = round(SLOT * sfreq)
    for place, kind in enumerate(kinds):
        x[:, place * size : (place + 1) * size] += event(rng, EVENTS[kind], sfreq)
    write_edf(file, x, sfreq)
    starts = [SLOT * place + (SLOT - 1) / 2 for place in range(len(kinds))]
    lines = [(int(rng.integers(22)), start, start + 1, kind + 1) for start, kind in zip(starts, kinds, strict=True)]
    if annotations == "rec":
        write_rec(file.with_suffix(".rec"), lines)
    else:
        write_csv(file.with_suffix(".csv"), [("TERM", *times, EVENTS[kind - 1]) for _, *times, kind in lines], seconds)


# ---- files


def write_edf(
    file: Path, x: Array, sfreq: float, labels: Sequence[str] = LABELS, extra: Sequence[str] = ("EKG1", "PHOTIC")
) -> None:
    """Samples (n_chans, n) in µV, and channels that are no EEG beside them."""
    rng = np.random.default_rng(0)
    signals = [_signal(row, sfreq, label) for row, label in zip(x, labels, strict=True)]
    for name in extra:
        label = "PHOTIC-REF" if name == "PHOTIC" else f"EEG {name}-REF"
        signals.append(_signal(100 * rng.standard_normal(x.shape[1]), sfreq, label))
    record = 1.0 if x.shape[1] % sfreq == 0 else math.gcd(x.shape[1], round(sfreq)) / sfreq
    file.parent.mkdir(parents=True, exist_ok=True)
    edfio.Edf(signals, data_record_duration=record).write(file)


def _signal(row: Array, sfreq: float, label: str) -> edfio.EdfSignal:
    return edfio.EdfSignal(
        row.clip(-RANGE, RANGE), sfreq, label=label, physical_dimension="uV", physical_range=(-RANGE, RANGE)
    )


def write_rec(file: Path, lines: Sequence[tuple[int, float, float, int]]) -> None:
    """Annotations as the events corpus has them: channel, start, end, number of the class from 1."""
    file.write_text("".join(f"{channel},{start:.1f},{end:.1f},{label}\n" for channel, start, end, label in lines))


def write_csv(file: Path, lines: Sequence[tuple[str, float, float, str]], seconds: float) -> None:
    """Annotations in the newer form, with a header and names of classes."""
    head = f"# version = csv_v1.0.0\n# bname = {file.stem}\n# duration = {seconds:.2f} secs\n#\n"
    rows = (f"{channel},{start:.4f},{end:.4f},{label},1.0000\n" for channel, start, end, label in lines)
    file.write_text(head + "channel,start_time,stop_time,label,confidence\n" + "".join(rows))


def subject_name(number: int) -> str:
    """Eight letters, ``aaaaaaaa`` for 0."""
    letters = ""
    for _ in range(8):
        number, letter = divmod(number, 26)
        letters = chr(ord("a") + letter) + letters
    return letters


# ---- signals in µV, 23 rows


def background(rng: np.random.Generator, seconds: float, sfreq: float) -> Array:
    """Noise whose power falls with frequency, partly common to all electrodes, of a size that differs."""
    n = round(seconds * sfreq)
    spectrum = np.fft.rfft(rng.standard_normal((len(ELECTRODES) + 1, n)))
    spectrum /= np.sqrt(np.maximum(np.fft.rfftfreq(n, 1 / sfreq), 0.5))
    x = np.fft.irfft(spectrum, n)
    x *= rng.uniform(8, 12) / x.std(axis=1, keepdims=True)
    return x[1:] + 0.5 * x[0]


def state(rng: np.random.Generator, name: str, seconds: float, sfreq: float) -> Array:
    """Rhythm of a whole recording: alpha over the back of the head, or slow waves over a temporal lobe."""
    t = np.arange(round(seconds * sfreq)) / sfreq
    if name == "normal":
        wave, where = 20 * np.sin(2 * np.pi * rng.uniform(9, 11) * t), ("O1", "O2", "P3", "P4", "T5", "T6", "PZ")
    else:
        wave, where = 50 * np.sin(2 * np.pi * rng.uniform(1.5, 3) * t), ("F7", "T3", "T5", "T1", "F3", "C3")
    return _weights(where)[:, None] * wave * rng.uniform(0.8, 1.2)


def event(rng: np.random.Generator, name: str, sfreq: float) -> Array:
    """What a class adds to the five seconds of an event."""
    t = np.arange(round(SLOT * sfreq)) / sfreq - SLOT / 2  # the event is from -0.5 to 0.5
    everywhere, left, front = ELECTRODES, ("F7", "T3", "T5", "T1"), ("FP1", "FP2")
    if name == "spsw":
        wave, where = 150 * _bump(t, 0.0, 0.03) - 80 * _bump(t, 0.2, 0.1), ("C3", "F3")
    elif name == "gped":
        wave, where = sum(120 * _bump(t, at, 0.06) for at in np.arange(-2.3, 2.4, 0.66)), everywhere
    elif name == "pled":
        wave, where = sum(120 * _bump(t, at, 0.06) for at in np.arange(-2.0, 2.1, 1.0)), left
    elif name == "eyem":
        wave, where = 200 * _bump(t, 0.0, 0.25), front
    elif name == "artf":
        wave, where = 80 * rng.standard_normal(len(t)), ("T3", "T4", "F7", "F8")
    else:
        wave, where = np.zeros_like(t), everywhere
    gradient = np.linspace(0.5, 1.0, len(ELECTRODES))  # bipolar channels see differences only
    return (_weights(where) * gradient)[:, None] * wave * rng.uniform(0.8, 1.2)


def _bump(t: Array, at: float, width: float) -> Array:
    return np.exp(-0.5 * ((t - at) / width) ** 2)


def _weights(names: Sequence[str]) -> Array:
    return np.array([float(name in names) for name in ELECTRODES])

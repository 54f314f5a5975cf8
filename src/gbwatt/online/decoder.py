"""Decoding of a running recording: chunks of samples in, decisions out."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_number, check_one_of, check_positive
from gbwatt.data.formats.npz import UNLABELLED
from gbwatt.data.montage import comparable_name
from gbwatt.data.preprocessing import Pick, Preprocessing, Resample
from gbwatt.data.preprocessing.streams import resampled_index
from gbwatt.data.trials import UNITS, Frame, Trials, unit_name
from gbwatt.decoding.alignment import FEWEST_TRIALS
from gbwatt.decoding.prediction import BATCH, steps_for_recordings
from gbwatt.decoding.signal_metadata import Recorded
from gbwatt.errors import ParameterError, ScaleWarning, ShapeError
from gbwatt.online.buffers import SampleBuffer
from gbwatt.online.evidence import Accumulator, Evidence

if TYPE_CHECKING:
    from gbwatt.decoding.estimator import EEGDecoder

Array = NDArray[Any]

#: Unit in which the steps of the training data receive recordings, as in :func:`gbwatt.decoding.predict_recordings`.
RECORDING_UNIT = "µV"
#: Name of the domain of a running recording.
ONLINE = "online"
#: Largest number of windows from which the alignment is estimated; successive ones overlap by at most half.
ADAPTATION_WINDOWS = 100


@dataclass(frozen=True, eq=False)
class Decision:
    """Decision for a window of a running recording.

    Attributes
    ----------
    time : float
        Time stamp of the event, or of the first sample of a sliding window.
    end : float
        Time stamp of the last sample of the window.
    event : str
        Name of the event; empty for sliding windows.
    label : str or None
        Name of the most probable class; None if its probability is below the threshold.
    probabilities : array (n_classes,)
        Of the window, or of the combined windows.
    problems : tuple of str
        Why the decision is unreliable, such as "NaN samples in C3"; empty otherwise.
    """

    time: float
    end: float
    event: str
    label: str | None
    probabilities: Array
    problems: tuple[str, ...] = ()

    @property
    def reliable(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


@dataclass
class Counts:
    """What has happened in a running recording.

    Attributes
    ----------
    samples : int
        Samples received.
    decisions, unreliable : int
        Decisions, and those of them with problems.
    gaps : int
        Gaps and jumps of the time stamps, after which filters and windows start anew.
    lost_events : int
        Events without a decision: their samples had been discarded, or a gap was within their window.
    skipped : int
        Sliding windows without a decision, because a later one was complete and the newest one was asked for.
    """

    samples: int = 0
    decisions: int = 0
    unreliable: int = 0
    gaps: int = 0
    lost_events: int = 0
    skipped: int = 0


class _Window(NamedTuple):
    """A window to decide on."""

    start: int  # number of its first sample after the steps
    event: str
    time: float | None  # of the event; None for sliding windows
    accumulator: Accumulator


class OnlineDecoder:
    """Decode a running recording with a trained model.

    Push chunks of samples of any size, and get the decisions for the windows that are complete.  The decoder waits for
    nothing and starts no thread.  Its probabilities are those of :func:`gbwatt.decoding.predict_recordings` for the
    whole recording, because all steps of the training data are causal.

    Parameters
    ----------
    model : EEGDecoder or path
        A fitted classifier, or the folder of a saved one.  It must have been trained on Trials, ``mne.Epochs`` or files
        whose steps are causal; see :class:`~gbwatt.data.preprocessing.Preprocessing`.
    sfreq : float
        Sampling rate of the stream in Hz.
    ch_names : sequence of str
        EEG channels of the stream.  Those of the model are found by name, in any order.
    unit : "V", "mV", "µV" or "nV"
        Unit of the samples.
    hop : float, optional
        Classify sliding windows, which begin every ``hop`` seconds; with ``events``, the interval between successive
        windows of an event.
    events : sequence of str or "all", optional
        Classify windows at the events with these names, or at all events, given to :meth:`mark`.  Default: sliding
        windows if ``hop`` is given, and all events otherwise.
    tmin : float, optional
        Start of the window in seconds after the event; default: as in training.
    rename : mapping of str to str, optional
        Names of channels in the model, for names in the stream.
    resample : bool
        Whether to resample a stream with another sampling rate than the training data.  Models with the step
        "resample" accept other sampling rates in any case.
    group : optional
        Known subject or session of the stream, for models with ``alignment`` or ``domain_norm``.
    adapt : bool
        For these models: whether to estimate alignment and statistics from the last 100 windows of the stream.  No
        labels are used, and no weights change.
    evidence : Evidence, optional
        Combination of successive windows, and threshold of decisions.  Default: each window alone, without threshold.
    max_gap : float
        Largest deviation, in seconds, of successive time stamps from the sampling interval.  Larger ones are gaps.
    history : float
        Number of seconds for which samples are kept, for events that are marked late.

    Attributes
    ----------
    counts : Counts
        What has happened so far.
    seconds : dict of str to float
        Time spent so far on "filter" and "model".
    class_names : tuple of str
        Names of the classes, in the order of the probabilities.

    Raises
    ------
    ParameterError
        If steps of the training data need later samples, a channel is missing, the sampling rate differs, or ``group``
        or ``adapt`` is needed.

    Examples
    --------
    >>> from gbwatt import GBWAttClassifier
    >>> from gbwatt.data import load
    >>> trials = Preprocessing.parse("bandpass=8-30,causal")(load("simulated-mi"))
    >>> model = GBWAttClassifier(task="mi", max_epochs=1).fit(trials[:40])
    >>> online = OnlineDecoder(model, trials.sfreq, trials.ch_names, hop=0.4)
    >>> x = 20 * np.random.default_rng(0).standard_normal((len(trials.ch_names), round(4 * trials.sfreq)))
    >>> [decision.time for decision in online.push(x)]
    [0.0, 0.4]
    """

    def __init__(
        self,
        model: EEGDecoder | str | Path,
        sfreq: float,
        ch_names: Sequence[str],
        *,
        unit: str = RECORDING_UNIT,
        hop: float | None = None,
        events: Sequence[str] | Literal["all"] | None = None,
        tmin: float | None = None,
        rename: Mapping[str, str] | None = None,
        resample: bool = False,
        group: Any = None,
        adapt: bool = False,
        evidence: Evidence | None = None,
        max_gap: float = 0.1,
        history: float = 5.0,
    ) -> None:
        from gbwatt.decoding.evaluation import load_decoder  # imports all readers of data

        decoder = load_decoder(model) if isinstance(model, str | Path) else model
        self._trained = _metadata_of(decoder)
        self._n_times = decoder.signal_.n_times
        self._steps, self._later = steps_for_recordings(self._trained)
        names = _model_names(ch_names, rename or {})
        self._n_given, self._rows = len(names), _rows(names, self._steps)
        if isinstance(self._steps.steps[0], Pick):  # selected before all else, so that other channels do not matter
            names, self._steps = self._steps.steps[0].channels, Preprocessing(*self._steps.steps[1:])
        self._input = Frame(names, check_positive("sfreq", sfreq, "Hz"), unit=RECORDING_UNIT)
        if resample and not any(isinstance(step, Resample) for step in self._steps.steps):
            self._steps = Preprocessing(Resample(self._trained.sfreq, causal=True)) + self._steps
        self._output = self._steps.stream(self._input).frame
        if self._output.sfreq != self._trained.sfreq:
            raise ParameterError(
                f"sfreq={sfreq:g} Hz, but the model was trained on {self._trained.sfreq:g} Hz; set resample=True "
                "(--resample), or train with the step resample."
            )
        self._scale = UNITS[unit_name(unit)] / UNITS[RECORDING_UNIT]
        self._hop = None if hop is None else self._checked_hop(hop)
        self._event_names = None if events in (None, "all") else tuple(events or ())
        self._sliding = hop is not None and events is None
        self._tmin = self._offset_of_windows(tmin)
        self.evidence = evidence or Evidence()
        if not self._sliding and self.evidence.n_windows > 1 and hop is None:
            raise ParameterError(f"n_windows={self.evidence.n_windows}: hop is needed, the interval between windows.")
        self._max_gap = check_positive("max_gap", max_gap, "s")
        self._seconds = check_positive("history", history, "s") + self._n_times / self._output.sfreq
        self._classifier = _Classifier(decoder, self._trained, group, adapt)
        self.class_names = decoder.class_names_
        self.counts, self.seconds = Counts(), {"filter": 0.0, "model": 0.0}
        self._marked: list[tuple[float, str]] = []  # events whose samples have not arrived
        self._start()

    def _checked_hop(self, hop: float) -> float:
        """Return the interval between windows in seconds; require at least one sample after the steps."""
        check_number("hop", hop)
        if not hop * self._output.sfreq >= 1:
            raise ParameterError(f"hop={hop:g} s must be at least one sample, {1 / self._output.sfreq:g} s.")
        return float(hop)

    def _first_sample(self, number: int) -> int:
        """Return the first sample after the steps of a window, from its number; as for recorded files, to the bit."""
        return round(number * (self._hop or 0.0) * self._output.sfreq)

    def _offset_of_windows(self, tmin: float | None) -> int:
        """Return the number of samples from an event to the start of its window."""
        tmin = self._trained.tmin if tmin is None else tmin
        if tmin is None and not self._sliding:
            raise ParameterError("tmin: the model does not record where its windows begin; give tmin, or hop.")
        check_number("tmin", tmin or 0.0)
        return round((tmin or 0.0) * self._output.sfreq)

    def _start(self) -> None:
        """Start filters and windows anew."""
        n_chans, kept = len(self._input.ch_names), round(self._seconds * self._input.sfreq) + 1
        self._stream = self._steps.stream(self._input)
        self._times = SampleBuffer(1, kept)
        self._missing, self._changed = (SampleBuffer(n_chans, kept, bool) for _ in range(2))
        self._last = np.full((n_chans, 1), np.nan)  # last finite sample of each channel
        self._filtered = SampleBuffer(
            len(self._output.ch_names), round(self._seconds * self._output.sfreq) + 1, np.float32
        )
        self._n_hops, self._accumulator = 0, Accumulator(self.evidence)
        self._due: list[_Window] = []  # of events

    # ---- input

    def push(self, samples: Any, times: Any = None, *, newest: bool = False) -> list[Decision]:
        """Add samples, and decide on the windows that are complete.

        Parameters
        ----------
        samples : array (n_chans, n)
            Channels in the order of ``ch_names``; n may be zero.
        times : array (n,), optional
            Time stamps in seconds, such as those of LSL.  Default: seconds since the first sample.
        newest : bool
            Of several sliding windows that are complete, decide on the newest one only, to make up for a delay.

        Returns
        -------
        list of Decision
            In the order of the ends of the windows.
        """
        x = np.asarray(samples, dtype=np.float64)
        if x.ndim != 2 or len(x) != self._n_given:
            raise ShapeError(f"'samples' {x.shape} is not ({self._n_given} channels, samples).")
        stamps = self._time_stamps(times, x.shape[1])
        jumps = self._jumps(stamps)
        decisions: list[Decision] = []
        edges = [*dict.fromkeys((0, *jumps)), len(stamps)]
        for start, stop in pairwise(edges):
            if start in jumps:
                self.counts.gaps += 1
                self.counts.lost_events += len(self._due)
                self._start()
            piece = x[self._rows, start:stop] * self._scale
            decisions += self._push_contiguous(piece, stamps[start:stop], newest)
        return decisions

    def mark(self, time: float, event: str) -> list[Decision]:
        """Add an event.

        Parameters
        ----------
        time : float
            Its time stamp; its samples may have arrived before or may come later.
        event : str
            Its name.

        Returns
        -------
        list of Decision
            Empty unless the window of the event is complete.
        """
        check_number("time", time)
        if not self._sliding and (self._event_names is None or event in self._event_names):
            self._marked.append((float(time), str(event)))
        return self._decide()

    def reset(self) -> None:
        """Forget all samples, events and combined windows, but not the counts and the adaptation."""
        self._marked.clear()
        self._start()

    def _time_stamps(self, times: Any, n: int) -> Array:
        """Return the given time stamps, or seconds since the first sample."""
        if times is None:
            return (self.counts.samples + np.arange(n)) / self._input.sfreq
        stamps = np.asarray(times, dtype=np.float64)
        if stamps.shape != (n,):
            raise ShapeError(f"'times' {stamps.shape} is not ({n},), one time stamp for each sample.")
        if not np.isfinite(stamps).all():
            raise ParameterError("'times' has NaN or infinite time stamps.")
        return stamps

    def _jumps(self, stamps: Array) -> list[int]:
        """Return the numbers of samples that do not follow the sample before them in time."""
        known = self._times.end > self._times.first
        before = self._times.between(self._times.end - 1, self._times.end)[0] if known else stamps[:1]
        intervals = np.diff(np.concatenate([before, stamps]))
        if not known and len(intervals):
            intervals[0] = 1 / self._input.sfreq
        found: list[int] = np.flatnonzero(np.abs(intervals - 1 / self._input.sfreq) > self._max_gap).tolist()
        return found

    def _push_contiguous(self, x: Array, stamps: Array, newest: bool) -> list[Decision]:
        """Add samples without gaps (n_chans, n) of the channels that the model needs."""
        if not x.shape[1]:
            return []
        self.counts.samples += x.shape[1]
        missing = ~np.isfinite(x.astype(np.float32))
        x = _fill(x, missing, self._last)
        before = np.concatenate([self._last, x[:, :-1]], axis=1)
        self._missing.append(missing)
        self._changed.append(x != before)
        self._last = x[:, -1:].copy()
        self._times.append(stamps[None])
        started = time.perf_counter()
        self._filtered.append(self._stream.push(x))
        self.seconds["filter"] += time.perf_counter() - started
        decisions = self._decide(newest)
        for buffer in (self._times, self._missing, self._changed, self._filtered):
            buffer.trim()
        return decisions

    # ---- windows

    def _decide(self, newest: bool = False) -> list[Decision]:
        """Decide on the windows that are complete; ``newest``: of sliding windows, on the last one."""
        self._find_events()
        ready = sorted(self._complete_windows(), key=lambda window: window.start)
        if newest and self._sliding:
            self.counts.skipped += len(ready[:-1])
            ready = ready[-1:]
        decisions: list[Decision] = []
        for first in range(0, len(ready), BATCH):
            windows = ready[first : first + BATCH]
            x = np.stack([self._filtered.between(w.start, w.start + self._n_times) for w in windows])
            started = time.perf_counter()
            x, frame = self._later.transform(x, replace(self._output, tmin=self._trained.tmin or 0.0))
            results = self._classifier.probabilities(x, frame, [window.start for window in windows])
            self.seconds["model"] += time.perf_counter() - started
            decisions += [self._decision(window, *result) for window, result in zip(windows, results, strict=True)]
        return decisions

    def _find_events(self) -> None:
        """Find the first samples of the windows of marked events."""
        if not self._marked or self._times.end == self._times.first:
            return
        times = self._times.between(self._times.first, self._times.end)[0]
        later = [mark for mark in self._marked if mark[0] > times[-1]]
        for moment, event in self._marked:
            if (moment, event) in later:
                continue
            place = self._times.first + float(np.interp(moment, times, np.arange(len(times))))
            onset = resampled_index(place, self._input.sfreq, self._output.sfreq)
            too_early = moment < times[0] - 0.5 / self._input.sfreq
            if too_early or onset + self._tmin < self._filtered.first:
                self.counts.lost_events += 1
                continue
            accumulator = Accumulator(self.evidence)
            hops = [self._first_sample(n) for n in range(self.evidence.n_windows)]
            self._due += [_Window(onset + self._tmin + hop, event, moment, accumulator) for hop in hops]
        self._marked = later

    def _complete_windows(self) -> Iterator[_Window]:
        """Remove the windows from those to come whose samples have all arrived, and return them."""
        last = self._filtered.end - self._n_times
        if self._sliding:
            while (start := self._first_sample(self._n_hops)) <= last:
                self._n_hops += 1
                yield _Window(start, "", None, self._accumulator)
        yield from (window for window in self._due if window.start <= last)
        self._due = [window for window in self._due if window.start > last]

    def _decision(self, window: _Window, probabilities: Array, problems: tuple[str, ...]) -> Decision:
        """Return the decision for the probabilities (n_classes,) of a window."""
        combined = window.accumulator.add(probabilities)
        first, last = (self._input_sample(window.start + n) for n in (0, self._n_times - 1))
        problems += self._problems(int(first), int(last) + 1)
        self.counts.decisions += 1
        self.counts.unreliable += bool(problems)
        best = int(combined.argmax())
        return Decision(
            time=self._time_of(first) if window.time is None else window.time,
            end=self._time_of(last),
            event=window.event,
            label=self.class_names[best] if combined[best] >= self.evidence.threshold else None,
            probabilities=combined,
            problems=problems,
        )

    def _input_sample(self, number: int) -> float:
        """Return the number of a sample before the steps, which may be a fraction, for one after them."""
        return number * self._input.sfreq / self._output.sfreq

    def _time_of(self, sample: float) -> float:
        """Return the time stamp of a sample before the steps."""
        whole = int(sample)
        return float(self._times.between(whole, whole + 1)[0, 0]) + (sample - whole) / self._input.sfreq

    def _problems(self, first: int, end: int) -> tuple[str, ...]:
        """Return texts about bad samples of a window."""
        names = np.array(self._input.ch_names)
        missing = names[self._missing.between(first, end).any(axis=1)]
        flat = np.setdiff1d(names[~self._changed.between(first, end)[:, 1:].any(axis=1)], missing)
        found = []
        if len(missing):
            found.append(f"NaN samples in {', '.join(missing)}")
        if len(flat):
            found.append(f"flat: {', '.join(flat)}")
        return tuple(found)


def _metadata_of(decoder: EEGDecoder) -> Recorded:
    """Return the metadata of the training data; raise an error if an online decoder cannot repeat their preparation."""
    trained: Recorded | None = decoder.recorded_
    if trained is None:
        raise ParameterError(
            "The model was trained on arrays, so that its channels and filters are unknown; train it on files, Trials "
            "or mne.Epochs."
        )
    band = trained.band_before_steps
    if band is not None:
        raise ParameterError(
            f"The recordings of the training data were filtered {band} before they were read, and an online decoder "
            "cannot repeat this; train on unfiltered recordings, with the filter as a causal step: "
            '--preprocess "bandpass=8-30,causal".'
        )
    return trained


def _model_names(ch_names: Sequence[str], rename: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the channels of the stream, after renaming."""
    names = tuple(map(str, ch_names))
    for name in rename:
        check_one_of("rename", name, names)
    return tuple(rename.get(name, name) for name in names)


def _rows(names: Sequence[str], steps: Preprocessing) -> list[int]:
    """Return the rows of the channels to process: those that the first step selects, otherwise all."""
    needed = next((step.channels for step in steps.steps if isinstance(step, Pick)), ())
    row_of = {comparable_name(name): row for row, name in reversed(list(enumerate(names)))}
    missing = [name for name in needed if comparable_name(name) not in row_of]
    if missing:
        raise ParameterError(
            f"ch_names: {', '.join(missing)} not found among the {len(names)} channels of the stream: "
            f"{', '.join(names)}. If they have other names there, give rename, such as {{'EEG 1': {missing[0]!r}}}."
        )
    if isinstance(steps.steps[0], Pick):
        return [row_of[comparable_name(name)] for name in needed]
    return list(range(len(names)))


def _fill(x: Array, missing: Array, last: Array) -> Array:
    """Replace missing samples (n_chans, n) by the last finite one of the channel, or by 0 if there is none."""
    if not missing.any():
        return x
    whole = np.concatenate([np.nan_to_num(last), x], axis=1)
    known = np.concatenate([np.ones_like(last, dtype=bool), ~missing], axis=1)
    place = np.maximum.accumulate(np.where(known, np.arange(whole.shape[1]), 0), axis=1)
    filled: Array = np.take_along_axis(whole, place, axis=1)[:, 1:]
    return filled


class _Classifier:
    """A fitted decoder for the windows of a running recording, which may adapt to them."""

    def __init__(self, decoder: EEGDecoder, trained: Recorded, group: Any, adapt: bool) -> None:
        self._decoder, self._trained, self._adapt = decoder, trained, adapt
        self._domain = self._name_of_domain(group)
        self._recent: list[Array] = []  # windows to adapt to
        self._newest = 0  # first sample of the last one of them
        self._compared = False
        if adapt:
            self._decoder = copy.deepcopy(decoder)

    def _name_of_domain(self, group: Any) -> Any:
        """Return the domain of the stream; None for decoders without domains."""
        domains = self._decoder.domains_
        if domains is None:
            if group is not None or self._adapt:
                raise ParameterError(
                    f"{'adapt=True' if self._adapt else f'group={group!r}'}: the model has neither alignment nor "
                    "domain_norm; train it with alignment='euclidean' (--align euclidean), for example."
                )
            return None
        if self._adapt:
            return ONLINE
        known = ", ".join(map(str, domains.names))
        if group is None:
            raise ParameterError(
                f"The model aligns the trials of each {domains.by}, so that it needs group=, one of {known}; or "
                "adapt=True (--adapt) to estimate the alignment from the stream."
            )
        check_one_of("group", str(group), tuple(map(str, domains.names)))
        return next(name for name in domains.names if str(name) == str(group))

    def probabilities(self, x: Array, frame: Frame, starts: Sequence[int]) -> list[tuple[Array, tuple[str, ...]]]:
        """Return the probabilities (n_classes,) and the problems of windows (n, n_chans, n_times).

        ``starts`` are the numbers of their first samples.
        """
        trials = Trials(
            X=x,
            y=np.zeros(len(x), dtype=int),
            class_names=(UNLABELLED,),
            **vars(frame),
            steps=self._trained.steps or (),
        )
        x = x * np.float32(self._trained.scale_of(Recorded.of(trials), "samples"))
        if self._adapt:
            return [self._adapted_probabilities(window[None], start) for window, start in zip(x, starts, strict=True)]
        groups = None if self._domain is None else np.full(len(x), self._domain)
        p, problems = _without_scale_warning(self._decoder, x if self._compared else trials, groups)
        self._compared = True  # with the training data
        return [(row, problems) for row in p]

    def _adapted_probabilities(self, x: Array, start: int) -> tuple[Array, tuple[str, ...]]:
        """Adapt to a window (1, n_chans, n_times), and return its probabilities and problems."""
        half = x.shape[-1] / 2
        if not self._recent or not 0 <= start - self._newest < half:
            self._recent = [*self._recent[1 - ADAPTATION_WINDOWS :], x[0]]
            self._newest = start
            if len(self._recent) >= FEWEST_TRIALS:
                self._decoder.adapt(np.stack(self._recent), groups=np.full(len(self._recent), ONLINE))
        if len(self._recent) < FEWEST_TRIALS:
            n = len(self._decoder.class_names_)
            return np.full(n, 1 / n), (f"adaptation has {len(self._recent)} of {FEWEST_TRIALS} windows",)
        p, problems = _without_scale_warning(self._decoder, x, np.array([ONLINE]))
        return p[0], problems


def _without_scale_warning(decoder: EEGDecoder, x: Any, groups: Array | None) -> tuple[Array, tuple[str, ...]]:
    """Return the probabilities of windows, and a problem instead of the warning that their amplitude is implausible."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        p = decoder.predict_proba(x, groups=groups)
    scale = False
    for warning in caught:
        scale |= issubclass(warning.category, ScaleWarning)
        if not issubclass(warning.category, ScaleWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return p, ("amplitude differs from the training data by a factor above 100: check the unit",) if scale else ()

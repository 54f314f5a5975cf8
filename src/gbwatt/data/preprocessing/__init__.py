"""Preprocessing as a sequence of explicit steps that give the same result offline and online."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_one_of
from gbwatt.data.preprocessing.parsing import CAUSAL, parse_steps
from gbwatt.data.preprocessing.steps import (
    BandPass,
    Convert,
    Crop,
    ExponentialStandardise,
    Noise,
    Notch,
    Pick,
    Reference,
    Resample,
    Standardise,
    Step,
    samples,
)
from gbwatt.data.trials import Frame, Trials, freeze
from gbwatt.errors import InputError, MismatchError, ParameterError, ShapeError

__all__ = [
    "BandPass",
    "Convert",
    "Crop",
    "ExponentialStandardise",
    "Noise",
    "Notch",
    "Pick",
    "Preprocessing",
    "PreprocessingStream",
    "Reference",
    "Resample",
    "Standardise",
    "Step",
]

Array = NDArray[Any]


@dataclass(frozen=True, init=False)
class Preprocessing:
    """A sequence of preprocessing steps.

    Call it with :class:`Trials`, to whose history the steps are added.  :meth:`transform` gives the same numbers for
    arrays, such as windows of a running recording.

    Parameters
    ----------
    *steps : Step
        Steps in the order of their application.
    causal : bool
        Whether to replace filters and resampling by their causal forms, for online decoding.

    Examples
    --------
    >>> steps = Preprocessing(BandPass(4, 38), Resample(125), Crop(0.5, 4.0), Standardise())
    >>> print(steps)
    band-pass 4-38 Hz (Butterworth 4, zero-phase)
    resample to 125 Hz
    crop to 0.5 … 4 s
    standardise (not fitted)
    >>> Preprocessing.from_records(steps.records()) == steps
    True
    >>> print(Preprocessing(BandPass(4, 38), Resample(125), causal=True))
    band-pass 4-38 Hz (Butterworth 4, causal)
    resample to 125 Hz (causal)
    """

    steps: tuple[Step, ...]

    def __init__(self, *steps: Step, causal: bool = False) -> None:
        for place, step in enumerate(steps):
            if not isinstance(step, Step):
                raise MismatchError(
                    f"steps[{place}] is a {type(step).__name__}; each argument must be a step: "
                    "Preprocessing(BandPass(4, 38), Resample(125))."
                )
        object.__setattr__(self, "steps", tuple(step.as_causal() for step in steps) if causal else steps)

    def fit(self, trials: Trials) -> Self:
        """Fit the steps that learn from training data, each on the output of those before it.

        Parameters
        ----------
        trials : Trials
            Training data.

        Returns
        -------
        Preprocessing
            A fitted copy.
        """
        learning = [place for place, step in enumerate(self.steps) if type(step).fit is not Step.fit]
        fitted_steps: list[Step] = []
        for place, step in enumerate(self.steps):
            fitted_steps.append(step.fit(trials))
            if learning and place < learning[-1]:  # later steps need no trials
                trials = Preprocessing(fitted_steps[-1])(trials)
        return type(self)(*fitted_steps)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Create the steps from a text, as on the command line.

        Parameters
        ----------
        text : str
            Assignments separated by commas, in the order of their application: ``bandpass=8-30``, ``highpass=1``,
            ``lowpass=40``, ``notch=50;100``, ``resample=125``, ``reference=average`` or ``reference=A1;A2``,
            ``channels=C3;Cz;C4``, ``crop=0.5:4``, ``standardise=0.001`` (exponential, with this decay) and ``unit=µV``.
            The word ``causal`` among them stands for causal filters, which online decoding needs.

        Returns
        -------
        Preprocessing

        Raises
        ------
        ParameterError
            If a step is unknown or has a wrong value; the message lists all problems.

        Examples
        --------
        >>> Preprocessing.parse("bandpass=8-30,resample=125") == Preprocessing(BandPass(8, 30), Resample(125))
        True
        """
        words = [part.strip() for part in text.split(",")]
        causal = CAUSAL in words
        return cls(*parse_steps(",".join(word for word in words if word != CAUSAL)), causal=causal)

    def divide(self) -> tuple[Self, Self]:
        """Divide the steps into those for a whole recording, and the remaining ones for trials cut from it.

        Filters are applied to the recording, so that trials have no transients at their ends.  The remaining steps
        begin with the first one that applies to trials only, such as :class:`Crop`.

        Returns
        -------
        for_recording, for_trials : Preprocessing

        Examples
        --------
        >>> for_recording, for_trials = Preprocessing.parse("bandpass=8-30,crop=0.5:4,resample=125").divide()
        >>> print(for_recording)
        band-pass 8-30 Hz (Butterworth 4, zero-phase)
        """
        first = next((place for place, step in enumerate(self.steps) if not step.continuous), len(self.steps))
        return type(self)(*self.steps[:first]), type(self)(*self.steps[first:])

    @property
    def is_causal(self) -> bool:
        """Whether new samples depend on earlier samples only."""
        return all(step.is_causal for step in self.steps)

    def stream(self, frame: Frame) -> PreprocessingStream:
        """Return the state of the steps at the start of a running recording.

        Parameters
        ----------
        frame : Frame
            Metadata of the samples that will be pushed.

        Returns
        -------
        PreprocessingStream

        Raises
        ------
        ParameterError
            If a step needs later samples, or is for trials only.
        """
        return PreprocessingStream(self, frame)

    @property
    def fitted(self) -> bool:
        """Whether all steps that learn from training data are fitted."""
        return all(step.fitted for step in self.steps)

    def __call__(self, trials: Trials) -> Trials:
        """Apply the steps to trials, and add them to their history."""
        if not isinstance(trials, Trials):
            raise MismatchError(
                f"trials is a {type(trials).__name__}; Trials are needed. For arrays use transform(x, frame)."
            )
        x, frame = self.transform(trials.X, trials.frame)
        return trials.replace(X=x, **vars(frame), steps=(*trials.steps, *self.records()))

    def transform(self, x: Any, frame: Frame) -> tuple[Array, Frame]:
        """Apply the steps to an array.

        Parameters
        ----------
        x : array (..., n_chans, n_times)
        frame : Frame
            Channels, sampling rate, start and unit of ``x``, such as ``trials.frame``.

        Returns
        -------
        array (..., n_chans, n_times)
            New samples in float32.
        Frame
            Their channels, sampling rate, start and unit.
        """
        x = samples(x, frame).copy()  # the caller may overwrite the window with the next one
        for step in self.steps:
            x, frame = step.transform(x, frame)
        return x, frame

    def are_last_of(self, trials: Trials) -> bool:
        """Return whether the history of trials ends with these steps, so that they need not be applied again."""
        records = [freeze(record) for record in self.records()]
        return not records or [freeze(step) for step in trials.steps[-len(records) :]] == records

    def __add__(self, other: Preprocessing | Step) -> Self:
        more = other.steps if isinstance(other, Preprocessing) else (other,)
        return type(self)(*self.steps, *more)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or "no preprocessing"

    # ---- records

    def records(self) -> list[dict[str, Any]]:
        """Return the steps as a list of dicts for JSON."""
        return [step.record() for step in self.steps]

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]]) -> Self:
        """Create the steps from :meth:`records` or :attr:`Trials.steps`, also after JSON.

        Fields with a default may be omitted.  All errors are reported together.

        Parameters
        ----------
        records : iterable of mappings

        Returns
        -------
        Preprocessing

        Raises
        ------
        ParameterError
            If a step or a field is unknown, missing or invalid.
        """
        steps, problems = [], []
        for place, record in enumerate(records):
            try:
                steps.append(_step_from_record(record))
            except InputError as error:
                problems += [f"records[{place}]: {line}" for line in str(error).splitlines()]
        if problems:
            raise ParameterError("\n".join(problems))
        return cls(*steps)


class PreprocessingStream:
    """Preprocessing of a running recording.

    The samples are those of :meth:`Preprocessing.transform` for the whole recording, for chunks of any size.

    Parameters
    ----------
    preprocessing : Preprocessing
    frame : Frame
        Metadata of the samples that will be pushed.

    Attributes
    ----------
    frame : Frame
        Metadata of the samples that :meth:`push` returns.

    Examples
    --------
    >>> frame = Frame(("C3", "C4"), 250.0)
    >>> stream = Preprocessing.parse("bandpass=8-30,resample=125,causal").stream(frame)
    >>> [stream.push(np.ones((2, n))).shape[1] for n in (1, 1, 10)], stream.frame.sfreq
    ([1, 0, 5], 125.0)
    """

    def __init__(self, preprocessing: Preprocessing, frame: Frame) -> None:
        self._n_chans = len(frame.ch_names)
        self._streams = []
        for step in preprocessing.steps:
            self._streams.append(step.stream(frame))
            frame = step.output_frame(frame)
        self.frame = frame

    def push(self, x: Any) -> Array:
        """Process the next samples.

        Parameters
        ----------
        x : array (n_chans, n)
            Samples in the order of time; n may be zero.

        Returns
        -------
        array (n_chans, n)
            New samples in float32; fewer or more if the sampling rate changes.
        """
        new = np.asarray(x)
        if new.ndim != 2 or len(new) != self._n_chans:
            raise ShapeError(f"'x' {new.shape} is not ({self._n_chans} channels, samples).")
        new = new.astype(np.float32)
        for stream in self._streams:
            new = stream.push(new.astype(np.float64)).astype(np.float32)
        return new


def _step_from_record(record: Any) -> Step:
    """Return the step that a record of :meth:`Step.record` describes; raise an error that lists all problems."""
    if not isinstance(record, Mapping) or "step" not in record:
        raise ParameterError(f"{record!r} is not a step; an example is {{'step': 'crop', 'tmin': 0, 'tmax': 1}}.")
    kinds = {kind.name: kind for kind in Step.__subclasses__()}  # includes user-defined steps
    check_one_of("step", record["step"], tuple(kinds))
    kind = kinds[record["step"]]
    values = {str(name): value for name, value in record.items() if name != "step"}
    problems = _field_problems(kind, values)
    if problems:
        raise ParameterError("\n".join(problems))
    return kind(**values)


def _field_problems(kind: type[Step], values: Mapping[str, Any]) -> list[str]:
    """Return texts for an error message about unknown and missing fields in ``values`` of a step of class ``kind``."""
    step_fields = fields(kind)  # type: ignore[arg-type]
    problems = []
    for name in values:
        try:
            check_one_of(f"field of {kind.name}", name, tuple(f.name for f in step_fields))
        except ParameterError as error:
            problems.append(str(error))
    needed = [f.name for f in step_fields if f.default is MISSING and f.default_factory is MISSING]
    return problems + [f"{kind.name} needs {name!r}." for name in needed if name not in values]

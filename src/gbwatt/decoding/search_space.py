"""Settings that a hyper-parameter search varies: ranges, choices, their text form, and defaults for each model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gbwatt._io import plain, to_json
from gbwatt._validation import check_at_least, check_number, check_one_of
from gbwatt.decoding.evaluation import TRAINING_SETTINGS, ModelSetup, TrainingSetup
from gbwatt.decoding.paradigms import PARADIGMS
from gbwatt.errors import ParameterError
from gbwatt.models.presets import Training
from gbwatt.models.registry import entry, known_options

if TYPE_CHECKING:
    from optuna import Trial

#: Two numbers with a dash between them, as a range is often written.
_DASHED_RANGE = re.compile(r"{0}-{0}".format(r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?"))
#: Significant digits of the numbers that are drawn from a range, so that commands remain readable.
DIGITS = 3


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included: whole numbers if both ends are ``int``.

    Examples
    --------
    >>> str(Range(1e-4, 1e-2, log=True)), str(Range(1, 4))
    ('0.0001:0.01:log', '1:4')
    """

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{self.low!r}:{self.high!r}{':log' * self.log}"

    @property
    def _whole(self) -> bool:
        """Whether the range has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[float, ...]:
        """The smallest and the largest value, for checks."""
        return self.low, self.high

    def draw(self, trial: Trial, name: str) -> float:
        """Let Optuna draw a number; real numbers are rounded to :data:`DIGITS` significant digits."""
        if self._whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        value = trial.suggest_float(name, self.low, self.high, log=self.log)
        return min(max(_rounded(value), self.low), self.high)

    def encode(self, value: Any) -> float | None:
        """Return the number of Optuna for a setting; None if the range does not contain it."""
        if isinstance(value, bool) or not isinstance(value, int if self._whole else int | float):
            return None
        return value if self.low <= value <= self.high else None


@dataclass(frozen=True)
class Choices:
    """Some values, which can be written as JSON.

    Examples
    --------
    >>> str(Choices((0, 0.1, "samples")))
    '0,0.1,samples'
    """

    values: tuple[Any, ...]

    def __str__(self) -> str:
        texts = [value if isinstance(value, str) else to_json(value, indent=None) for value in self.values]
        nested = any(isinstance(value, list | tuple) for value in self.values)
        return to_json(list(self.values), indent=None) if nested else ",".join(texts)

    @property
    def ends(self) -> tuple[Any, ...]:
        """All values, for checks."""
        return self.values

    def draw(self, trial: Trial, name: str) -> Any:
        """Let Optuna draw one of the values, as JSON texts, because it considers 1 and True equal."""
        return json.loads(trial.suggest_categorical(name, [to_json(value, indent=None) for value in self.values]))

    def encode(self, value: Any) -> str | None:
        """Return the text of the category for a setting; None if it is not among the values."""
        texts = [to_json(known, indent=None) for known in self.values]
        numbers = [text for text, known in zip(texts, self.values, strict=True) if _same(known, value)]
        return numbers[0] if numbers else None


Dimension = Range | Choices
Space = Mapping[str, Dimension]


def _rounded(value: float) -> float:
    """A number with :data:`DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _same(one: Any, other: Any) -> bool:
    """Whether two settings are equal; True and 1 are not."""
    return bool(isinstance(one, bool) == isinstance(other, bool) and one == other)


# ------------------------------------------------------------------------------------------------------------- parsing

_FORMS = "NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=VALUE,VALUE"


def parse_space(texts: Iterable[str]) -> dict[str, Dimension]:
    """Parse the texts of settings, as on the command line.

    Parameters
    ----------
    texts : iterable of str
        ``"lr=1e-4:1e-2:log"`` is a range on a logarithmic scale, ``"n_segments=1:4"`` a range of whole numbers,
        ``"theta=0.5:2.0"`` a range of real numbers, and ``"shrinkage=0,0.1,samples"`` are choices.

    Returns
    -------
    dict of str to Range or Choices

    Raises
    ------
    ParameterError
        If a text has another form, or a name is given twice.

    Examples
    --------
    >>> parse_space(["lr=1e-4:1e-2:log", "shrinkage=0,0.1"])
    {'lr': Range(low=0.0001, high=0.01, log=True), 'shrinkage': Choices(values=(0, 0.1))}
    """
    space: dict[str, Dimension] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ParameterError(f"space={text!r} has another form; give {_FORMS}.")
        if name in space:
            raise ParameterError(f"space has {name!r} twice; give its range or its values once.")
        space[name] = _parse_dimension(name, value)
    return space


def _parse_dimension(name: str, text: str) -> Dimension:
    """Parse the range or the choices of a setting."""
    if text.startswith("["):
        try:
            return make_dimension(name, json.loads(text))
        except ValueError as error:
            if isinstance(error, ParameterError):
                raise
            raise ParameterError(f"space: {name}={text!r} is not a JSON list ({error}).") from None
    if _DASHED_RANGE.fullmatch(text):
        raise ParameterError(f"space: {name}={text!r} has a dash; a range is LOW:HIGH or LOW:HIGH:log.")
    if ":" not in text:
        return make_dimension(name, [_parse_value(part.strip()) for part in text.split(",")])
    ends = [_parse_value(part.strip()) for part in text.split(":")]
    return make_dimension(name, tuple(ends))


def _parse_value(text: str) -> Any:
    """Parse a value: as JSON if possible, and otherwise as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def make_dimension(name: str, given: Any) -> Dimension:
    """Return the range or choices of a setting.

    Parameters
    ----------
    name : str
        Name of the setting, for error messages.
    given : Range, Choices, tuple, list or str
        ``(low, high)`` or ``(low, high, "log")`` is a range, a list has choices, and a text is parsed as on the command
        line.

    Returns
    -------
    Range or Choices

    Raises
    ------
    ParameterError
        If a range is empty, or choices are missing or repeated.
    """
    if isinstance(given, Range):
        return _checked_range(name, (given.low, given.high, *(["log"] if given.log else [])))
    if isinstance(given, Choices | list):
        return _checked_choices(name, given.values if isinstance(given, Choices) else given)
    if isinstance(given, tuple):
        return _checked_range(name, given)
    if isinstance(given, str):
        return _parse_dimension(name, given)
    raise ParameterError(
        f"space: {name}={given!r} is a {type(given).__name__}; give a tuple (low, high) or (low, high, 'log'), or a "
        "list of values."
    )


def _checked_range(name: str, given: tuple[Any, ...]) -> Range:
    """Return the range ``(low, high)`` or ``(low, high, "log")``, after checks."""
    text = ":".join(map(str, given))
    if len(given) not in (2, 3) or given[2:] not in ((), ("log",)):
        raise ParameterError(f"space: {name}={text!r} is no range; give LOW:HIGH or LOW:HIGH:log.")
    low, high = (plain(end) for end in given[:2])
    for end in (low, high):
        check_number(f"space: {name}={text!r}: end", end)
    if not low < high:
        raise ParameterError(f"space: {name}={text!r} is empty; the first number must be below the second.")
    log = len(given) == 3
    if log and low <= 0:
        raise ParameterError(f"space: {name}={text!r}: a logarithmic range must be above 0.")
    return Range(low, high, log)


def _checked_choices(name: str, values: Iterable[Any]) -> Choices:
    """Return choices, after checks."""
    checked = [plain(value) for value in values]
    if not checked or "" in checked:
        raise ParameterError(f"space: {name}={checked} has no values, or an empty one; give one or more values.")
    for value in checked:
        if isinstance(value, float) and not math.isfinite(value):
            raise ParameterError(f"space: {name}={value} is not finite; give finite numbers.")
    texts = [to_json(value, indent=None) for value in checked]
    repeated = [text for text in texts if texts.count(text) > 1]
    if repeated:
        raise ParameterError(f"space: {name} has the value {repeated[0]} twice.")
    return Choices(tuple(checked))


# -------------------------------------------------------------------------------------------------------------- checks

#: Smallest value of the training settings that are whole numbers.
_LEAST = {"batch_size": 2, "max_epochs": 1, "early_stopping": 1, "n_members": 1}


def make_space(setup: TrainingSetup, given: Mapping[str, Any] | Iterable[str] | None) -> dict[str, Dimension]:
    """Return the space of a search: the default one if ``given`` is None.

    Parameters
    ----------
    setup : TrainingSetup
        Model, fixed settings and data, checked.
    given : mapping, iterable of str or None
        A range or choices for each name, see :func:`make_dimension`; or texts, see :func:`parse_space`.

    Returns
    -------
    dict of str to Range or Choices

    Raises
    ------
    ParameterError
        If a name is unknown to the model, a setting is also fixed, a value of a training setting is not allowed, or
        there is nothing to choose from.
    """
    if given is None:
        space = default_space(setup)
    elif isinstance(given, Mapping):
        space = {str(name): make_dimension(str(name), value) for name, value in given.items()}
    else:
        space = parse_space([given] if isinstance(given, str) else given)
    names = setting_names(setup)
    for name, dimension in space.items():
        check_one_of(f"setting of {setup.model}", name, names)
        if name in setup.options or name in setup.training:
            raise ParameterError(f"{name} is both fixed and in the space; remove it from one of them.")
        for value in dimension.ends:
            check_training_value(name, value)
    if all(isinstance(dimension, Choices) and len(dimension.values) == 1 for dimension in space.values()):
        raise ParameterError(
            f"space={format_space(space)} has nothing to choose from; give a range or several values of at least one "
            f"of {', '.join(names)}."
        )
    return space


def setting_names(setup: ModelSetup) -> tuple[str, ...]:
    """Names of the settings that can be varied: training settings, and options of the model except the recipe."""
    training = () if entry(setup.model).classical else TRAINING_SETTINGS
    return (*training, *(name for name in known_options(setup.model) or () if name != "recipe"))


def check_training_value(name: str, value: Any) -> None:
    """Raise ParameterError for a value that a training setting cannot have; model options are not checked."""
    if name in _LEAST:
        check_at_least(name, value, _LEAST[name])
    elif name in ("lr", "weight_decay"):
        check_number(name, value)
        if value < 0 or (name == "lr" and value == 0):
            raise ParameterError(f"{name}={value} must be {'above 0' if name == 'lr' else '0 or more'}.")


def format_space(space: Space) -> dict[str, str]:
    """Text form of a space, by the names of the settings."""
    return {name: str(dimension) for name, dimension in space.items()}


def encode_settings(space: Space, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return settings as parameters of Optuna; None if a setting is missing, or outside its range or choices."""
    encoded = {name: dimension.encode(settings.get(name)) for name, dimension in space.items()}
    return None if None in encoded.values() else encoded


# ------------------------------------------------------------------------------------------------------------- defaults

#: Rule for the dimension of a model option, from all options of the default model and the length of an epoch in
#: samples; None if the option should not be varied.
_Rule = Callable[[Mapping[str, Any], int], Dimension | None]


def _near(values: Iterable[Any]) -> Choices:
    """Choices without repetitions, sorted if they are numbers."""
    numbers = sorted({value for value in values if not isinstance(value, str)})
    return Choices((*numbers, *dict.fromkeys(value for value in values if isinstance(value, str))))


def _shrinkages(options: Mapping[str, Any], _n_times: int) -> Dimension:
    """From little to strong shrinkage, and the rule by samples."""
    return _near([0.05, 0.1, 0.2, 0.3, options["shrinkage"], "samples"])


def _segments(options: Mapping[str, Any], n_times: int) -> Dimension | None:
    """Up to the default number of windows, or up to four windows with two samples for each filter."""
    possible = min(4, n_times // (2 * options.get("n_temporal", n_times)))
    most = max(options["n_segments"], possible)
    return Range(1, most) if most > 1 else None


def _kernels(options: Mapping[str, Any], n_times: int) -> Dimension:
    """Half, equal and double the default length, but at most half of the epoch."""
    kernel = options["kernel"]
    even = kernel % 2 == 0
    lengths = [min(length, n_times // 2) for length in (kernel // 2, 2 * kernel)]
    return _near([kernel, *(max(2, length - even * (length % 2)) for length in lengths)])


def _temporal_filters(options: Mapping[str, Any], _n_times: int) -> Dimension:
    """At least as many filters as rows are kept by the bilinear maps."""
    n = options["n_temporal"]
    return _near([max(options.get("k") or 1, 3 * n // 4), n, 4 * n // 3])


def _matrix_sizes(options: Mapping[str, Any], _n_times: int) -> Dimension:
    """Half, three quarters and all of the default size."""
    k = options["k"]
    return _near([max(1, k // 2), max(1, 3 * k // 4), k])


def _filters(options: Mapping[str, Any], _n_times: int) -> Dimension:
    """Half, equal and double the default number of filters."""
    n = options["n_filters"]
    return _near([max(1, n // 2), n, 2 * n])


#: Rules for model options that are varied by default.
_OPTION_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "shrinkage": _shrinkages,
        "n_segments": _segments,
        "kernel": _kernels,
        "n_temporal": _temporal_filters,
        "k": _matrix_sizes,
        "theta": lambda options, _: Range(0.5, 2.0) if options.get("metric") == "gbw" else None,
        "residual": lambda _, __: Choices((0.0, 0.5, "learnt")),
        "dropout": lambda _, __: Range(0.0, 0.6),
        "drop_prob": lambda _, __: Range(0.0, 0.6),
        "C": lambda _, __: Range(1e-3, 1e2, log=True),
        "n_filters": _filters,
        "n_selected": lambda options, _: _near([6, 12, 24, options["n_selected"]]),
        "n_harmonics": lambda _, __: Range(1, 4),
    }
)
#: Options that determine the network for which initial weights from a classical pipeline are defined.
_KEPT_BY_CLASSICAL_WEIGHTS = ("n_temporal",)


def default_space(setup: TrainingSetup) -> dict[str, Dimension]:
    """Return the default space of a model: settings near the usual ones, without those that are fixed.

    Parameters
    ----------
    setup : TrainingSetup
        Model, fixed settings and data, checked.

    Returns
    -------
    dict of str to Range or Choices
    """
    usual = usual_settings(setup)
    space = {} if entry(setup.model).classical else _training_space(setup.usual_training, len(setup.split.train))
    paradigm = str(setup.paradigm)
    classical = paradigm in PARADIGMS and setup.settings_of(paradigm).initialization == "classical"
    kept = _KEPT_BY_CLASSICAL_WEIGHTS if classical else ()
    names = set(setting_names(setup)).difference(kept)
    for name, make in _OPTION_RULES.items():
        known = name in names and (name not in _NEED_DEFAULT or usual.get(name) is not None)
        dimension = make(usual, setup.trials.shape[2]) if known else None
        if dimension is not None:
            space[name] = dimension
    return {name: one for name, one in space.items() if name not in setup.options and name not in setup.training}


#: Options whose rule needs the value of the default model.
_NEED_DEFAULT = ("shrinkage", "n_segments", "kernel", "n_temporal", "k", "theta", "residual", "n_filters", "n_selected")


def usual_settings(setup: TrainingSetup) -> dict[str, Any]:
    """Settings of a training without a search: training settings, and all options of the model as it is built."""
    training = {} if setup.usual_training is None else asdict(setup.usual_training)
    recipe = {} if setup.recipe is None or "recipe" in setup.options else {"recipe": setup.recipe}
    config = getattr(setup.with_settings({"n_members": 1, **recipe}).build_model(), "config", {})
    return {**config, **training, **setup.options, **setup.training}


def _training_space(usual: Training | None, n: int) -> dict[str, Dimension]:
    """Learning rates, weight decays and batch sizes near the usual ones, for ``n`` training trials."""
    if usual is None:
        return {}
    sizes = [size for size in (usual.batch_size // 2, usual.batch_size, 2 * usual.batch_size) if 2 <= size <= n]
    return {
        "lr": Range(_rounded(usual.lr / 5), _rounded(usual.lr * 5), log=True),
        "weight_decay": _near([0.0, 1e-3, 1e-2, 1e-1, usual.weight_decay]),
        **({"batch_size": Choices(tuple(sizes))} if len(sizes) > 1 else {}),
    }

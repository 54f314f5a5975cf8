"""Rows of results as plain values and as CSV files."""

from __future__ import annotations

import csv
import io
import json
import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, takewhile
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gbwatt._io import write_atomically
from gbwatt._validation import check_one_of
from gbwatt.errors import StoreError
from gbwatt.experiments.runs import Row, Run, Status

#: The values of a row, in the order of its columns: numbers and text only.
PlainRow = tuple[str | int | float | None, ...]

COLUMNS = Row._fields  # of stores and CSV files
REQUIRED = tuple(name for name in COLUMNS if name not in Row._field_defaults)
_STATUSES = get_args(Status)
_MAX_ERRORS = 20  # number of errors that a message lists
_LONGEST_FIELD = 2**31 - 1  # characters; a history may be longer than the limit of the csv module

# Beginning of text that spreadsheets evaluate.  Apostrophes distinguish guarded text from text that began with one.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")


def guarded(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would evaluate as a formula; numbers are not changed.

    Examples
    --------
    >>> guarded("=1+1"), guarded("'=1+1"), guarded("-0.25"), guarded("a=1")
    ("'=1+1", "''=1+1", '-0.25', 'a=1')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguarded(text: str) -> str:
    """Undo :func:`guarded`.

    Examples
    --------
    >>> unguarded("'=1+1"), unguarded("''=1+1"), unguarded("-0.25"), unguarded("'a")
    ('=1+1', "'=1+1", '-0.25', "'a")
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


def _type_of(hint: Any) -> type:
    """Return the type of a column of :class:`Row` from its hint: dict, list, float or int, and str for others."""
    for part in (hint, *get_args(hint)):
        base = get_origin(part) or part
        if base in (dict, list, float, int, str):
            return base  # type: ignore[no-any-return]
    return str


#: The type of each column, besides None.
KINDS: dict[str, type] = {name: _type_of(hint) for name, hint in get_type_hints(Row).items()}


# -------------------------------------------------------------------------------------------------------- plain values


def flatten(row: Row) -> PlainRow:
    """Return the values of a row as numbers and text: mappings and lists as JSON, NaN, which SQLite lacks, as "nan".

    Examples
    --------
    >>> flatten(Row("k", "done", {"seed": 1}, accuracy=0.75))[:5]
    ('k', 'done', '{"seed":1}', 0.75, None)
    """
    if not row.key:
        raise StoreError(f"key={row.key!r} of a row is empty; it must be the key of its run.")
    check_one_of("status", row.status, _STATUSES)
    if not isinstance(row.run, dict):
        raise StoreError(f"row {row.key}: run={row.run!r} must be the result of Run.to_dict().")
    return tuple(_stored_value(row.key, name, value) for name, value in row._asdict().items())


def _stored_value(key: str, name: str, value: Any) -> str | int | float | None:
    """Return the value of column ``name`` as it is stored; errors name the row, by its key, and the column."""
    if value is None:
        return None
    try:
        return _plain_value(KINDS[name], value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(
            f"row {key}: {name}={value!r:.80} cannot be stored ({error}); it must be a {KINDS[name].__name__}."
        ) from error


def _plain_value(kind: type, value: Any) -> str | int | float:
    """Convert a value to text or a number, as SQLite and CSV store it."""
    if kind in (dict, list):
        return _escape_unencodable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_numpy_to_json))
    if kind is int:
        number = int(operator.index(value))
        if not -(2**63) <= number < 2**63:
            raise ValueError("it has more than 64 bits")
        return number
    if kind is float:
        real = float(value)
        return real + 0.0 if real == real else "nan"  # SQLite has no -0.0, either
    return _escape_unencodable(str(value))


def _numpy_to_json(value: Any) -> Any:
    """Convert NumPy values, which ``json`` cannot encode, to Python values."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"{type(value).__name__} is not a JSON type")
    return value.tolist()


def _escape_unencodable(text: str) -> str:
    """Escape characters that UTF-8 cannot encode, such as in file names of tracebacks; JSON reads the escapes back."""
    return text.encode("utf-8", "backslashreplace").decode()


def restore(values: Sequence[str | int | float | None], columns: Sequence[str] = COLUMNS) -> Row:
    """Inverse of :func:`flatten`; columns that are not given have their defaults.

    Raises
    ------
    StoreError
        A value does not have the type of its column.

    Examples
    --------
    >>> row = Row("k", "done", {"seed": 1}, accuracy=0.75, history={"valid_loss": [0.5]})
    >>> restore(flatten(row)) == row
    True
    """
    by_name = dict(zip(columns, values, strict=True))
    missing = [name for name in REQUIRED if not by_name.get(name)]
    if missing:
        raise StoreError(f"{missing[0]} is empty")
    row = Row(**{name: _parse_value(name, value) for name, value in by_name.items() if value is not None})
    if row.status not in _STATUSES:
        raise StoreError(f"status is {row.status!r}, but must be one of {_STATUSES}")
    return row


def _parse_value(name: str, value: str | int | float) -> Any:
    """Convert a stored value back to the type of its column."""
    kind = KINDS[name]
    try:
        if kind not in (dict, list):
            return kind(value)
        structure = json.loads(str(value))
        if not isinstance(structure, kind):
            raise ValueError("JSON of another type")
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StoreError(f"{name} is {value!r:.60}, which is not a {kind.__name__} ({error!s:.100})") from error
    return structure


# --------------------------------------------------------------------------------------------------------------- files


def read_csv(path: str | Path) -> list[Row]:
    """Read the rows of a CSV file that :meth:`~gbwatt.experiments.store.Store.export_csv` has written.

    Columns may be in any order, and columns with a default may be missing.  Empty fields have the default.

    Raises
    ------
    StoreError
        A value has a wrong type or range, or values contradict each other.  The message lists all errors of the file
        with their lines.
    """
    return list(stream_csv(path))


def stream_csv(path: str | Path) -> Iterator[Row]:
    """Yield the valid rows of a CSV file one by one; at the end, raise one error with all problems of the others.

    Raises
    ------
    StoreError
        If the file cannot be read or has errors, after all valid rows.
    """
    path = Path(path).expanduser()
    errors: list[tuple[int, str]] = []
    try:
        with path.open("rb") as file:
            yield from _valid_rows(file, errors)
    except _DamagedError as error:  # the rest cannot be read
        errors.append((error.line, str(error)))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error
    if errors:
        raise StoreError(_describe_errors(path, errors))


class _DamagedError(StoreError):
    """A CSV file that cannot be read beyond ``line``."""

    def __init__(self, line: int, message: str) -> None:
        """Store the line at which reading stopped."""
        super().__init__(message)
        self.line = line


def _describe_errors(path: Path, errors: list[tuple[int, str]]) -> str:
    """Return the errors of a file as text, the first of them with line numbers."""
    remedy = "If the file is damaged or incomplete, get it from its source again, or export the rows again."
    if len(errors) == 1:
        return f"{path}, line {errors[0][0]}: {errors[0][1]}. {remedy}"
    lines = [f"  line {line}: {message}." for line, message in errors[:_MAX_ERRORS]]
    lines += [f"  and {len(errors) - _MAX_ERRORS} more."] if len(errors) > _MAX_ERRORS else []
    return "\n".join([f"{path} has {len(errors)} errors:", *lines, remedy])


def _valid_rows(file: Iterable[bytes], errors: list[tuple[int, str]]) -> Iterator[Row]:
    """Yield the valid rows of a CSV file; line and problem of the others are added to the list ``errors``."""
    records = _read_records(file)
    _, names = next(records, (1, []))
    _check_header(names)
    first_lines: dict[str, int] = {}  # by key
    for line, fields in records:
        try:
            if len(fields) != len(names):
                raise StoreError(f"{len(fields)} fields, but the header has {len(names)}")
            values = (unguarded(text) if KINDS[name] is str else text for name, text in zip(names, fields, strict=True))
            row = restore([value or None for value in values], names)
            if row.key in first_lines:
                raise StoreError(f"key {row.key:.60} is also in line {first_lines[row.key]}; keep one of the rows")
        except StoreError as error:
            errors.append((line, str(error)))
            continue
        first_lines[row.key] = line
        problems = find_problems(row)
        errors += [(line, text) for text in problems]
        if not problems:
            yield row


def _check_header(names: list[str]) -> None:
    """Require the columns of result rows, each once, and no unknown ones."""
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise _DamagedError(1, f"no column {missing[0]!r}; the file does not contain result rows")
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise _DamagedError(1, f"column {unknown[0]!r:.60} is unknown; a newer version may have written the file")
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise _DamagedError(1, f"column {repeated[0]!r:.60} is repeated")


def _read_records(file: Iterable[bytes]) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each record with the number of its first line."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    reader = csv.reader(_decode_lines(file), strict=True)
    line = 1
    try:
        for fields in reader:
            yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise _DamagedError(line, f"not valid CSV ({error})") from error


def _decode_lines(file: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a file as text; raise an error for bytes that are not UTF-8 or an incomplete line."""
    for number, line in enumerate(file, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")  # spreadsheets may write a byte order mark
        except UnicodeDecodeError as error:
            raise _DamagedError(number, f"not UTF-8 text ({error.reason})") from error
        if not text.endswith("\n"):
            raise _DamagedError(number, "the file ends in the middle of a row")
        yield text


def write_csv(path: str | Path, rows: Iterable[PlainRow]) -> None:
    """Write rows to a file, which is replaced when it is complete, or not changed."""
    path = Path(path).expanduser()
    lines = (_format_line(map(_guarded_value, COLUMNS, row)).encode() for row in rows)
    try:
        write_atomically(path, chain([_format_line(COLUMNS).encode()], lines))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}. It was not changed.") from error


def _guarded_value(name: str, value: str | int | float | None) -> str | int | float | None:
    """Apply :func:`guarded` to a value of column ``name`` if it is text, before it is written to a CSV file."""
    return guarded(value) if KINDS[name] is str and isinstance(value, str) else value


def _format_line(values: Iterable[str | int | float | None]) -> str:
    """Return one line of a CSV file, which ends with a line feed."""
    line = io.StringIO()
    csv.writer(line).writerow(values)  # ends with \r\n, so that both characters are quoted in fields
    return line.getvalue().removesuffix("\r\n") + "\n"


# -------------------------------------------------------------------------------------------------------------- checks

_MAX_DEPTH = 8  # largest number of nested levels of options and preprocessing steps
_TOLERANCE = 1e-6  # for rounding errors of scores


def _check_json(value: Any, depth: int = 0) -> Any:
    """Require finite numbers and limited nesting in a JSON value; ``depth`` is the level of the value."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"must not be nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be finite")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_json(item, depth + 1)
    return value


def _check_not_negative(value: float) -> float:
    """Require a value of at least 0, up to rounding; NaN and infinity are allowed."""
    if value < -_TOLERANCE:  # NaN and infinity are possible
        raise ValueError("must not be negative")
    return value


def _check_kappa(value: float) -> float:
    """Require a value of Cohen's kappa, from -1 to 1; NaN is allowed."""
    if abs(value) > 1:  # NaN is possible
        raise ValueError("must be between -1 and 1")
    return value


def _check_time(value: str) -> str:
    """Require a time in ISO 8601 and return it in a uniform format; an empty text is allowed."""
    try:
        return value and datetime.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError("must be a time in ISO 8601, such as 2025-01-31T12:00:00+00:00") from None


def _check_square(matrix: list[list[int]]) -> list[list[int]]:
    """Require a confusion matrix with as many rows as columns."""
    if any(len(row) != len(matrix) for row in matrix):
        raise ValueError("must be a square matrix")
    return matrix


_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Share = Annotated[float, Field(ge=0, le=1)]
_PossiblyInfinite = Annotated[float, AfterValidator(_check_not_negative)]
_NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Json = Annotated[Any, AfterValidator(_check_json)]


class _Schema(BaseModel):
    """Base of the schema of a row: unknown keys and conversions of types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _RunSchema(_Schema):
    """Values of :class:`~gbwatt.experiments.runs.Run` that are allowed in files."""

    dataset: _Name
    subject: _Count
    model: _Name
    seed: _Count
    data: str
    split: _Count = 0
    options: dict[str, _Json] = {}
    training: dict[str, _Json] = {}
    fraction: _Share = 1.0
    noise: _NonNegative = 0.0
    noisy_training: bool = False


class _ClassSchema(_Schema):
    """Scores of one class, and its number of test trials."""

    recall: _Share = 0.0
    precision: _Share = 0.0
    n: _NonNegative = 0.0


class _ConditionSchema(_Schema):
    """Share of ill-conditioned matrices, and median and largest condition number."""

    share: _Share = 0.0
    median: _PossiblyInfinite = 0.0
    largest: _PossiblyInfinite = 0.0


class _ConditionsSchema(_Schema):
    """Condition numbers before and after attention."""

    before: _ConditionSchema = _ConditionSchema()
    after: _ConditionSchema = _ConditionSchema()


class _TrialsSchema(_Schema):
    """Numbers of training, validation and test trials."""

    train: _Count = 0
    valid: _Count = 0
    test: _Count = 0


class _RowSchema(_Schema):
    """Values of :class:`~gbwatt.experiments.runs.Row` that are allowed in files."""

    key: str
    status: str
    run: _RunSchema
    accuracy: _Share | None
    balanced_accuracy: _Share | None
    kappa: Annotated[float, AfterValidator(_check_kappa)] | None
    auc: _Share | None
    loss: _PossiblyInfinite | None
    per_class: dict[str, _ClassSchema] | None
    confusion: Annotated[list[list[_Count]], AfterValidator(_check_square)] | None
    valid_accuracy: _Share | None
    valid_loss: _PossiblyInfinite | None
    best_epoch: _Count | None
    epochs: _Count | None
    history: dict[str, list[float]] | None
    conditions: _ConditionsSchema | None
    trials: _TrialsSchema | None
    parameters: _Count | None
    preprocessing: list[dict[str, _Json]] | None
    seconds: _NonNegative | None
    seconds_per_epoch: _NonNegative | None
    versions: dict[str, str] | None
    finished: Annotated[str, AfterValidator(_check_time)]
    traceback: str | None
    warnings: list[str] | None


def find_problems(row: Row) -> list[str]:
    """Describe all values of a row that have a wrong type or range, or that contradict each other."""
    try:
        _RowSchema.model_validate(row._asdict())
    except ValidationError as error:
        first: dict[tuple[int | str, ...], str] = {}  # one problem for each list
        for detail in error.errors(include_url=False):
            path = tuple(takewhile(lambda step: isinstance(step, str), detail["loc"]))
            first.setdefault(path, _describe_error(**detail))
        return list(first.values())
    return [*_contradictions(row), *_key_mismatch(row)]


def _describe_error(loc: tuple[int | str, ...], type: str, msg: str, input: Any, **_: Any) -> str:
    """Return a validation error of pydantic as text; the arguments are those of its error details."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).removeprefix(".")
    if type in ("missing", "extra_forbidden"):
        return f"{path:.120} is {'missing' if type == 'missing' else 'not a known key'}"
    shown = repr(input)
    requirement = re.sub(r"^(\w+ should|Value error,) ", "must ", msg).replace("must must", "must")
    return f"{path:.120} is {shown if len(shown) <= 60 else shown[:57] + '...'}, but {requirement}"


def _contradictions(row: Row) -> Iterator[str]:
    """Yield contradictions between columns of a row: epochs, history and confusion matrix."""
    if row.best_epoch is not None and row.epochs is not None and row.best_epoch > row.epochs:
        yield f"best_epoch is {row.best_epoch}, but epochs is {row.epochs}"
    for name, values in (row.history or {}).items():
        if row.epochs is not None and len(values) != row.epochs:
            yield f"history.{name} has {len(values)} values, but epochs is {row.epochs}"
    if row.confusion is not None:
        yield from _contradictions_of_confusion(row, row.confusion)


def _contradictions_of_confusion(row: Row, confusion: list[list[int]]) -> Iterator[str]:
    """Yield contradictions between the confusion matrix and other columns."""
    sizes = [sum(line) for line in confusion]
    total, hits = sum(sizes), sum(line[index] for index, line in enumerate(confusion))
    tested = (row.trials or {}).get("test", total)
    if total != tested:
        yield f"confusion has {total} trials, but trials.test is {tested}"
    if total and row.accuracy is not None and abs(row.accuracy - hits / total) > _TOLERANCE:
        yield f"accuracy is {row.accuracy}, but {hits} of {total} trials in confusion are correct"
    if row.per_class is not None:
        counts = [scores.get("n") for scores in row.per_class.values()]
        if len(counts) != len(sizes):
            yield f"per_class has {len(counts)} classes, but confusion has {len(sizes)}"
        elif any(count is not None and count != size for count, size in zip(counts, sizes, strict=True)):
            yield f"per_class has n = {counts}, but confusion has {sizes} trials of these classes"


def _key_mismatch(row: Row) -> Iterator[str]:
    """Yield an error if the key of a row is not the hash of its run."""
    key = Run.from_dict(row.run).key
    if key != row.key:
        yield f"key {row.key:.60} is not that of its run, {key}: the key or the run was changed"

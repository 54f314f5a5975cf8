"""Rows of results as plain values and as CSV files."""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from gbwatt._validation import check_one_of
from gbwatt.errors import StoreError
from gbwatt.experiments.row_checks import problems
from gbwatt.experiments.runs import Row, Status

# Apostrophes are included so that guarded text can be told from text that had one before.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")


def guarded(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would evaluate; numbers stay as they are.

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


#: The values of a row, in the order of its columns: numbers and text only.
Flat = tuple[str | int | float | None, ...]

COLUMNS = Row._fields
REQUIRED = tuple(name for name in COLUMNS if name not in Row._field_defaults)
_STATUSES = get_args(Status)
_SHOWN = 20  # problems in a message

# A field and what ends it: quoted, with its quotes doubled, or bare.  Not the csv module's reader, which refuses long
# histories unless a limit of the whole process is lifted.
_FIELD = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r?\n)')
_SPECIAL = re.compile(r'[",\r\n]')


def _kind(hint: Any) -> type:
    """Which of dict, list, float, int and str the values of a column are."""
    for part in (hint, *get_args(hint)):
        base = get_origin(part) or part
        if base in (dict, list, float, int, str):
            return base  # type: ignore[no-any-return]
    return str


#: The type of each column, besides None.
KINDS: dict[str, type] = {name: _kind(hint) for name, hint in get_type_hints(Row).items()}


# -------------------------------------------------------------------------------------------------------- plain values


def flatten(row: Row) -> Flat:
    """The plain values of a row: JSON for mappings and lists, and the text ``nan`` for NaN, which SQLite has not.

    Examples
    --------
    >>> flatten(Row("k", "done", {"seed": 1}, accuracy=0.75))[:5]
    ('k', 'done', '{"seed":1}', 0.75, None)
    """
    _check(row)
    return tuple(_flat(row.key, name, value) for name, value in row._asdict().items())


def _check(row: Row) -> None:
    if not row.key:
        raise StoreError(f"key={row.key!r} of a row is empty; it is the key of its run.")
    check_one_of("status", row.status, _STATUSES)
    if not isinstance(row.run, dict):
        raise StoreError(f"row {row.key}: run={row.run!r} must be what Run.to_dict() gives.")


def _flat(key: str, name: str, value: Any) -> str | int | float | None:
    if value is None:
        return None
    try:
        return _plain(KINDS[name], value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(
            f"row {key}: {name}={value!r:.80} cannot be kept ({error}); {KINDS[name].__name__} is needed."
        ) from error


def _plain(kind: type, value: Any) -> str | int | float:
    if kind in (dict, list):
        return _writable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_of_numpy))
    if kind is int:
        number = int(operator.index(value))
        if not -(2**63) <= number < 2**63:
            raise ValueError("it has more than 64 bits")
        return number
    if kind is float:
        real = float(value)
        return real + 0.0 if real == real else "nan"  # SQLite has no -0.0, either
    return _writable(str(value))


def _of_numpy(value: Any) -> Any:
    """Arrays and their scalars as JSON has them: an hour of training is not lost because a score has the wrong type."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"{type(value).__name__} is no type of JSON")
    return value.tolist()


def _writable(text: str) -> str:
    """Text as UTF-8 can have it; names of files in tracebacks may be otherwise.  JSON reads the escapes back."""
    return text.encode("utf-8", "backslashreplace").decode()


def restore(values: Sequence[str | int | float | None], columns: Sequence[str] = COLUMNS) -> Row:
    """Inverse of :func:`flatten`; columns that are left out have their defaults.

    Raises
    ------
    StoreError
        A value is not what its column has; where the row came from is for the caller to add.

    Examples
    --------
    >>> row = Row("k", "done", {"seed": 1}, accuracy=0.75, history={"valid_loss": [0.5]})
    >>> restore(flatten(row)) == row
    True
    """
    found = dict(zip(columns, values, strict=True))
    missing = [name for name in REQUIRED if not found.get(name)]
    if missing:
        raise StoreError(f"{missing[0]} is empty")
    row = Row(**{name: _restored(name, value) for name, value in found.items() if value is not None})
    if row.status not in _STATUSES:
        raise StoreError(f"status is {row.status!r}, neither of {_STATUSES}")
    return row


def _restored(name: str, value: str | int | float) -> Any:
    kind = KINDS[name]
    try:
        if kind not in (dict, list):
            return kind(value)
        structure = json.loads(str(value))
        if not isinstance(structure, kind):
            raise ValueError("JSON of another type")
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StoreError(f"{name} is {value!r:.60}, which is no {kind.__name__} ({error!s:.100})") from error
    return structure


# --------------------------------------------------------------------------------------------------------------- files


def read_csv(path: str | Path) -> list[Row]:
    """All rows of a file that :meth:`~gbwatt.experiments.store.Store.export_csv` wrote.

    Columns may be in another order, and those may be missing that have a default.  Types, ranges and what columns say
    about each other are checked; all errors of a file are reported together, each with its line.
    """
    return list(stream_csv(path))


def stream_csv(path: str | Path) -> Iterator[Row]:
    """The rows of a file, one after the other; the error that has all problems comes after the good ones."""
    path = Path(path).expanduser()
    wrong: list[tuple[int, str]] = []
    try:
        yield from _checked(path, wrong)
    except _DamagedError as error:  # nothing can be read behind it
        wrong.append((error.line, str(error)))
    if wrong:
        raise StoreError(_listed(path, wrong))


class _DamagedError(StoreError):
    """Text that is no row."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def _listed(path: Path, wrong: list[tuple[int, str]]) -> str:
    remedy = "If the file is damaged or cut off, get it again where it came from, or export the rows anew."
    if len(wrong) == 1:
        return f"{path}, line {wrong[0][0]}: {wrong[0][1]}. {remedy}"
    lines = [f"  line {line}: {what}." for line, what in wrong[:_SHOWN]]
    lines += [f"  and {len(wrong) - _SHOWN} more."] if len(wrong) > _SHOWN else []
    return "\n".join([f"{path} has {len(wrong)} errors:", *lines, remedy])


def _checked(path: Path, wrong: list[tuple[int, str]]) -> Iterator[Row]:
    """Rows that are right; what is wrong with others is added to ``wrong``."""
    records = _records(path)
    _, header = next(records, (1, []))
    _check_header(header)
    names, lines = [str(name) for name in header], dict[str, int]()
    for line, fields in records:
        try:
            if len(fields) != len(names):
                raise StoreError(f"{len(fields)} fields, where the header has {len(names)}")
            row = restore(_bare(fields, names), names)
            if row.key in lines:
                raise StoreError(f"key {row.key:.60} is in line {lines[row.key]}, too; keep one of the two rows")
        except StoreError as error:
            wrong.append((line, str(error)))
            continue
        lines[row.key] = line
        found = problems(row)
        wrong += [(line, text) for text in found]
        if not found:
            yield row


def _bare(fields: list[str | None], names: list[str]) -> list[str | None]:
    """Fields without the apostrophe that :func:`_guarded` puts before text that looks like a formula."""
    pairs = zip(names, fields, strict=True)
    return [unguarded(value) if value and KINDS[name] is str else value for name, value in pairs]


def _check_header(header: list[str | None]) -> None:
    names = [str(name) for name in header]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise _DamagedError(1, f"no column {missing[0]!r}; this is no file of result rows")
    strange = [name for name in names if name not in COLUMNS or names.count(name) > 1]
    if strange:
        what = f"column {strange[0]!r:.60} is not known, or twice; a newer version may have written it"
        raise _DamagedError(1, what)


def _records(path: Path) -> Iterator[tuple[int, list[str | None]]]:
    """The number of the first line, and the fields, of each record; a quoted field may go over several lines."""
    try:
        with path.open("rb") as file:
            start, parts, quotes = 1, list[bytes](), 0
            for number, line in enumerate(file, 1):
                parts.append(line)
                quotes += line.count(b'"')
                if quotes % 2 == 0:
                    yield start, _fields(start, b"".join(parts))
                    start, parts, quotes = number + 1, [], 0
            if parts:
                raise _DamagedError(start, "a quote is opened here and never closed")
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error


def _fields(line: int, record: bytes) -> list[str | None]:
    if not record.endswith(b"\n"):
        raise _DamagedError(line, "the file ends in the middle of a row")
    try:
        text = record.decode("utf-8-sig" if line == 1 else "utf-8")  # spreadsheets may put a mark at the beginning
    except UnicodeDecodeError as error:
        raise _DamagedError(line, f"no UTF-8 text ({error.reason})") from error
    fields, at = list[str | None](), 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None:
            raise _DamagedError(line, f"field {len(fields) + 1} has a quote or an end of line where none can be")
        quoted, bare, at = match[1], match[2], match.end()
        fields.append((bare or None) if quoted is None else quoted.replace('""', '"'))
    return fields


def write_csv(path: str | Path, rows: Iterable[Flat]) -> None:
    """Write rows; whoever reads the file, at any moment, sees the old content or the new, complete."""
    path = Path(path).expanduser()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        try:
            with unfinished.open("w", encoding="utf-8", newline="") as file:
                file.write(_line(COLUMNS))
                file.writelines(_line(map(_guarded, COLUMNS, row)) for row in rows)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}. What it had before is kept.") from error


def _guarded(name: str, value: str | int | float | None) -> str | int | float | None:
    """A value that no spreadsheet takes for a formula; :func:`read_csv` gives the text back as it was."""
    return guarded(value) if KINDS[name] is str and isinstance(value, str) else value


def _line(values: Iterable[str | int | float | None]) -> str:
    return ",".join(map(_field, values)) + "\n"


def _field(value: str | int | float | None) -> str:
    """None is nothing, and text that is empty a pair of quotes; numbers have all their digits."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else repr(value)
    return '"' + text.replace('"', '""') + '"' if not text or _SPECIAL.search(text) else text

"""The store: an SQLite file with the rows of results."""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, get_args

from gbwatt._validation import check_one_of
from gbwatt.errors import ConflictWarning, StoreError
from gbwatt.experiments.row_io import (
    COLUMNS,
    KINDS,
    REQUIRED,
    PlainRow,
    flatten,
    read_csv,
    restore,
    stream_csv,
    write_csv,
)
from gbwatt.experiments.runs import STRUCTURED, Row, Run, Status

__all__ = ["ConflictWarning", "Store", "StoreError", "read_csv", "read_rows"]

#: Marks an SQLite file as a store.
APPLICATION_ID = 0x47425761  # "GBWa"
#: Increased when the columns change.
VERSION = 1
PATIENCE = 60.0  # seconds to wait for the transaction of another process

_READ, _WRITE = "BEGIN", "BEGIN IMMEDIATE"  # SQL; the second waits for the lock first, so it cannot fail later
_BATCH = 500  # keys in one query; SQLite allows 999 or more
_MAGIC = b"SQLite format 3\0"  # first bytes of an SQLite file
_MIN_BYTES = 512  # bytes of an SQLite file; SQLite treats a file of one byte as empty and would overwrite it
#: Scores that are compared if two stores have the same run.
_SCORES = ("accuracy", "balanced_accuracy", "kappa", "auc", "loss")
_SQL_TYPES = {float: "REAL", int: "INTEGER"}
#: Column with the checksum of a row.  Stores of older versions get it when they are opened for writing.
CHECKSUM = "checksum"

#: Error messages by the error code of SQLite.
_CAUSE_OF_CODE = {
    sqlite3.SQLITE_FULL: "the disk is full. The rows written so far are kept; free some space and try again.",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written. The rows written so far are kept; check whether it is "
    "full, and try again.",
    sqlite3.SQLITE_BUSY: f"another process has locked it for {PATIENCE:g} s. Wait until that process ends, or stop it.",
    sqlite3.SQLITE_READONLY: "the file or its folder is not writable. Change the permissions, or use another path.",
    sqlite3.SQLITE_CANTOPEN: "the file does not exist or cannot be opened. Check its path and permissions.",
    sqlite3.SQLITE_NOTADB: "it is not an SQLite file. It was not changed; use another path, or `gbwatt store import` "
    "if it is a CSV file of rows.",
    sqlite3.SQLITE_CORRUPT: "it is damaged; it may have been copied while it was written. It was not changed. Restore "
    "it from a backup, copy the undamaged rows with `gbwatt store recover`, or import an exported CSV file into a new "
    "store with `gbwatt store import`; then run the benchmark again for the missing runs.",
}
_DAMAGED_TEXT = _CAUSE_OF_CODE[sqlite3.SQLITE_CORRUPT]


class Store:
    """Rows by the keys of their runs, in an SQLite file.

    Parameters
    ----------
    path : path
        SQLite file.
    create : bool
        Whether to create the file and its folder if they do not exist, and to require that the file is writable.
        If false, the file must exist, and may be read-only.

    Notes
    -----
    Opening a store checks the structure of the file and the checksum of every row.  A damaged file or row raises an
    error, and nothing is changed.  Rows of older versions have no checksum; their key must be that of their run, and
    they get a checksum when the store is opened for writing.  Rows are checked in batches, each in a short
    transaction, so that other processes can write in between.

    Each call that writes is one transaction, which is on the disk when the call returns.  A program that is killed
    loses at most the row that it was adding.  The next program that opens the file undoes an unfinished transaction,
    using the journal file next to the store; copy that file together with the store if it exists.

    Several processes of a machine may write to a store; each waits until the others have finished.  No connection is
    kept between calls, so a store may be used on both sides of a fork, in any thread, and sent to another process.

    The file uses a rollback journal and not a write-ahead log.  With a row every few seconds the log would not be
    faster; it would keep the last rows in a second file, which is easily forgotten in a copy; and it does not work
    between machines that share a network file system.  The rollback journal works there if the server supports locks.
    If it does not, write from one machine only, or use one store for each machine and :meth:`merge` them.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
    ...     store.add(Row("a", "failed", {"dataset": "simulated-mi"}))
    ...     store.add(Row("a", "done", {"dataset": "simulated-mi"}, accuracy=0.75))
    ...     store.add(Row("a", "failed", {"dataset": "simulated-mi"}))
    ...     len(store), store.get("a").accuracy
    (1, 0.75)
    """

    def __init__(self, path: str | Path, create: bool = True) -> None:
        """Open and check the store; create it if ``create``."""
        self.path = Path(path).expanduser().absolute()
        self._check_path(create)
        if create:
            with self._session(_WRITE, create):  # makes a store of an empty file; writes nothing to others
                pass
        self._missing_checksums = self._check_content()  # checksums of the rows without one, by key
        if create:
            with self._session(_WRITE) as connection:  # shows missing permissions before the first run
                connection.execute(f"PRAGMA user_version = {VERSION}")
            self._write_checksums()

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no connection is kept between calls."""

    def __len__(self) -> int:
        """Return the number of rows."""
        with self._session(_READ) as connection:
            return int(_query_value(connection, "SELECT count(*) FROM rows"))

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    # ---------------------------------------------------------------------------------------------------------- rows

    def add(self, row: Row) -> None:
        """Add a row, or replace that of a failed run; a row of a run that is done is kept."""
        values = flatten(row)
        self._write_checksums()
        with self._session(_WRITE) as connection:
            _add_checksum_column(connection)
            present = _find_row(connection, row.key)
            if present is None or present["status"] == "failed":
                _write_row(connection, values)

    def get(self, key: str) -> Row | None:
        """Return the row of a run; None if there is none."""
        return next(iter(self.rows([key])), None)

    def keys(self, status: Status | None = None) -> set[str]:
        """Return the keys of all rows, or of those with a status."""
        if status is not None:
            check_one_of("status", status, get_args(Status))
        with self._session(_READ) as connection:
            keys = connection.execute("SELECT key FROM rows WHERE ?1 IS NULL OR status = ?1", (status,))
            return {key for (key,) in keys}

    def rows(self, keys: Iterable[str] | None = None, structured: bool = True) -> list[Row]:
        """Return rows, ordered by data set, model, subject, seed and key.

        Parameters
        ----------
        keys : iterable of str, optional
            Keys of runs; those without a row are ignored.  Default: all.
        structured : bool
            Whether to read histories and the other columns that are mappings or lists.  Without them, reading is much
            faster; they are None then, except ``run``.
        """
        columns = tuple(name for name in COLUMNS if structured or name not in STRUCTURED or name in REQUIRED)
        wanted = self.keys() if keys is None else set(keys)
        rows = [self._restore_row(values, columns) for values in self._stream_rows(sorted(wanted), columns)]
        return sorted(rows, key=lambda row: _sort_key(row.key, row.run))

    def _restore_row(self, values: PlainRow, columns: Sequence[str]) -> Row:
        """Convert stored values to a row; values of a wrong type mean that the store is damaged."""
        try:
            return restore(values, columns)
        except StoreError as error:
            raise self._damage_error(f"row {values[0]}: {error}") from error

    def _damage_error(self, details: str) -> StoreError:
        """Return the error for a damaged store, with details."""
        return StoreError(f"store {self.path}: {_DAMAGED_TEXT} ({details})")

    def forget(self, keys: Iterable[str]) -> int:
        """Remove the rows of those runs that failed, and return their number.

        Rows of runs that are done are kept: another process may just have finished them.
        """
        with self._session(_WRITE) as connection:
            remove = "DELETE FROM rows WHERE key = ? AND status = 'failed'"
            return connection.executemany(remove, [(key,) for key in keys]).rowcount

    # --------------------------------------------------------------------------------------------------- other places

    def export_csv(self, path: str | Path) -> None:
        """Write all rows to a CSV file, which :meth:`import_csv` and :func:`read_csv` read without loss.

        The order is that of :meth:`rows`, so that new rows give small changes in version control.  The file is replaced
        when it is complete.
        """
        with self._session(_READ) as connection:
            plain_rows = connection.execute("SELECT key, status, run FROM rows").fetchall()
        _require_not_sqlite(Path(path).expanduser())
        rows = [self._restore_row(values, REQUIRED) for values in plain_rows]
        keys = [row.key for row in sorted(rows, key=lambda row: _sort_key(row.key, row.run))]
        write_csv(path, self._stream_rows(keys, COLUMNS))

    def import_csv(self, path: str | Path) -> int:
        """Add the rows of a CSV file, or none if the file has errors; return the number of rows that were added.

        A row of a run that is done replaces that of a failed run, and a later failure an earlier one.  If a run is done
        in both and its scores differ, the row of the store is kept, with a :class:`ConflictWarning`.
        """
        return self._add_rows(map(flatten, stream_csv(path)), path)

    def merge(self, other: str | Path) -> int:
        """Add the rows of another store, by the rules of :meth:`import_csv`; return the number that were added."""
        theirs = Store(other, create=False)
        if theirs.path.samefile(self.path):
            return 0
        return self._add_rows(theirs._stream_rows(sorted(theirs.keys()), COLUMNS), other)

    def recover(self, damaged: str | Path) -> int:
        """Copy the undamaged rows of a damaged store; return the number that were added."""
        return self._add_rows(self._undamaged_rows(Path(damaged).expanduser().absolute()), damaged)

    def _undamaged_rows(self, path: Path) -> Iterator[PlainRow]:
        """Yield the values of all rows of another, damaged store that can be read and have not changed."""
        if not path.is_file():
            raise StoreError(f"{path} does not exist or is not a file; give the path of the damaged store.")
        if path.samefile(self.path):
            raise StoreError(f"{path} is the store itself; give the damaged store, and a new file for its rows.")
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                query = f"SELECT {_checksum_sql(connection)}, {', '.join(COLUMNS)} FROM rows WHERE rowid = ?"
                numbers = sorted(set(_readable_rowids(connection, "ASC")) | set(_readable_rowids(connection, "DESC")))
                for number in numbers:
                    with suppress(sqlite3.Error, StoreError):  # skips a damaged row
                        written, *values = connection.execute(query, (number,)).fetchone() or (None,)
                        if values:
                            self._check_row(tuple(values), written)
                            yield tuple(values)
        except sqlite3.Error as error:
            raise StoreError(
                f"{path}: no row can be read ({error}); restore the store from a backup or an exported CSV file."
            ) from error

    def _add_rows(self, rows: Iterable[PlainRow], source: str | Path) -> int:
        """Add or replace rows by the rules of :meth:`import_csv`; return the number of these rows.

        Rows of runs that are done in both, with different scores, are reported in one :class:`ConflictWarning`.
        ``source`` is the path of the rows, for the warning.
        """
        n_added, conflicts = 0, list[str]()
        self._write_checksums()
        with self._session(_WRITE) as connection:
            _add_checksum_column(connection)
            for values in rows:
                theirs = dict(zip(COLUMNS, values, strict=True))
                ours = _find_row(connection, theirs["key"])
                if ours is None or _replaces(theirs, ours):
                    _write_row(connection, values)
                    n_added += 1
                elif _contradicts(theirs, ours):
                    conflicts.append(
                        f"{theirs['key']} (accuracy {ours['accuracy']} kept, {theirs['accuracy']} ignored)"
                    )
        if conflicts:
            more = f" and {len(conflicts) - 10} more" if len(conflicts) > 10 else ""
            text = f"{source} and {self.path} have different scores for the same runs; those of the latter were kept: "
            warnings.warn(text + ", ".join(conflicts[:10]) + more + ".", ConflictWarning, stacklevel=3)
        return n_added

    # ----------------------------------------------------------------------------------------------------------- file

    def _stream_rows(self, keys: Sequence[str], columns: Sequence[str]) -> Iterator[PlainRow]:
        """Yield the values of rows in the order of the keys; read in batches, so that others can write in between."""
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            marks = ", ".join("?" * len(batch))
            with self._session(_READ) as connection:
                checksum = _checksum_sql(connection)
                query = f"SELECT {checksum}, key, {', '.join(columns)} FROM rows WHERE key IN ({marks})"
                by_key = {key: (tuple(values), written) for written, key, *values in connection.execute(query, batch)}
            for values, written in (by_key[key] for key in batch if key in by_key):
                if columns == COLUMNS:
                    self._check_row(values, written)
                yield values

    def _check_content(self) -> dict[Any, str]:
        """Check the file and all rows; return the checksums of rows that are stored without one, by key."""
        with self._session(_READ) as connection:
            (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone() or ("no answer",)
        if answer != "ok":
            raise self._damage_error(f"SQLite: {answer!s:.200}")
        missing: dict[Any, str] = {}
        for values, written in self._all_rows():
            self._check_row(values, written)
            if written is None:
                missing[values[0]] = _checksum(values)
        return missing

    def _all_rows(self) -> Iterator[tuple[PlainRow, object]]:
        """Yield values and checksum of each row; read in batches, so that others can write in between."""
        last = -(2**63)
        while True:
            with self._session(_READ) as connection:
                query = f"SELECT rowid, {_checksum_sql(connection)}, {', '.join(COLUMNS)} FROM rows WHERE rowid > ?"
                batch = connection.execute(f"{query} ORDER BY rowid LIMIT {_BATCH}", (last,)).fetchall()
            yield from ((tuple(values), written) for _, written, *values in batch)
            if len(batch) < _BATCH:
                return
            last = batch[-1][0]

    def _write_checksums(self) -> None:
        """Write the checksums of rows that had none on opening, except rows that others have replaced since."""
        keys = list(self._missing_checksums)
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            with self._session(_WRITE) as connection:
                _add_checksum_column(connection)
                marks = ", ".join("?" * len(batch))
                query = f"SELECT {', '.join(COLUMNS)} FROM rows WHERE {CHECKSUM} IS NULL AND key IN ({marks})"
                computed = [(_checksum(values), values[0]) for values in connection.execute(query, batch)]
                unchanged = [(checksum, key) for checksum, key in computed if checksum == self._missing_checksums[key]]
                connection.executemany(f"UPDATE rows SET {CHECKSUM} = ? WHERE key = ?", unchanged)
        self._missing_checksums = {}

    def _check_row(self, values: PlainRow, written: object) -> None:
        """Reject a row whose values do not match ``written``, its stored checksum; without one, its key is checked."""
        if written is None:
            _require_key_of_run(self._restore_row(values, COLUMNS), self._damage_error)
        elif written != _checksum(values):
            raise self._damage_error(f"row {values[0]!s:.60}: its values have changed since it was written")

    @contextmanager
    def _session(self, begin: str, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Open a connection for one transaction, which is undone if an error occurs.

        Parameters
        ----------
        begin : str
            SQL that begins the transaction, ``_READ`` or ``_WRITE``.
        create : bool
            Whether to create the file if it does not exist.
        """
        address = f"{self.path.as_uri()}?mode={'rwc' if create else 'rw'}"
        try:
            with closing(sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, uri=True)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")  # the end of the journal is written to the disk, too
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute(begin)
                self._check_header(connection, create)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, sqlite3.Warning) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details
            cause = _CAUSE_OF_CODE.get(
                code, "SQLite reports an error; if the file is damaged, restore it from a backup or an export."
            )
            raise StoreError(f"store {self.path}: {cause} ({error})") from error

    def _check_path(self, create: bool) -> None:
        """Require a usable path, before SQLite opens it; create the folder if ``create``."""
        try:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            elif not self.path.exists():
                raise StoreError(f"store {self.path} does not exist; check the path, or run a benchmark first.")
            if self.path.is_dir():
                raise StoreError(f"{self.path} is a folder; a store is a file, such as {self.path / 'results.sqlite'}.")
            if self.path.exists() and 0 < self.path.stat().st_size < _MIN_BYTES:
                raise StoreError(f"store {self.path}: {_CAUSE_OF_CODE[sqlite3.SQLITE_NOTADB]}")
        except OSError as error:
            raise StoreError(
                f"store {self.path}: its folder cannot be used ({error.strerror or error}); use another path."
            ) from error

    def _check_table(self, connection: sqlite3.Connection) -> None:
        """Require a plain table with the columns of a row, without views or triggers."""
        schema = connection.execute("SELECT type, name FROM sqlite_master").fetchall()
        tables = [kind for kind, name in schema if name == "rows"]
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('rows')")}
        if tables != ["table"] or any(kind == "trigger" for kind, _ in schema) or not columns >= set(COLUMNS):
            missing = sorted(set(COLUMNS) - columns)
            details = f"no column {missing[0]}" if missing else "a view or a trigger instead of a plain table"
            raise self._damage_error(f"rows: {details}")

    def _check_header(self, connection: sqlite3.Connection, create: bool) -> None:
        """Require a store of this version, by the identifiers in the header of SQLite files; initialise an empty file.

        Raises
        ------
        StoreError
            If the file belongs to another program or version, or is empty and ``create`` is false.
        """
        application, version = (
            int(_query_value(connection, f"PRAGMA {name}")) for name in ("application_id", "user_version")
        )
        if application == APPLICATION_ID and version == VERSION:
            self._check_table(connection)
            return
        if application == APPLICATION_ID:
            raise StoreError(
                f"store {self.path} has version {version}, but this gbwatt supports only {VERSION}; update gbwatt, or "
                "use another path. It was not changed."
            )
        if application or version or _query_value(connection, "SELECT count(*) FROM sqlite_master"):
            raise StoreError(
                f"{self.path} is an SQLite file of another program (application_id {application}, user_version "
                f"{version}), not a store; use another path. It was not changed."
            )
        if not create:
            raise StoreError(f"{self.path} is empty and not a store yet; run a benchmark first.")
        _create_table(connection)


def _require_key_of_run(row: Row, damaged: Callable[[str], StoreError]) -> None:
    """Reject a row without checksum whose key is not that of its run; ``damaged`` makes the error from details."""
    try:
        key = Run.from_dict(row.run).key
    except (TypeError, ValueError, RecursionError) as error:
        raise damaged(f"row {row.key:.60}: its run cannot be read: {error!s:.100}") from error
    if key != row.key:
        raise damaged(f"row {row.key:.60}: its run has the key {key}")


def _readable_rowids(connection: sqlite3.Connection, order: str) -> Iterator[int]:
    """Yield the row numbers of a damaged table from its beginning ("ASC") or end ("DESC") up to the damaged part."""
    with suppress(sqlite3.Error):
        for (number,) in connection.execute(f"SELECT rowid FROM rows NOT INDEXED ORDER BY rowid {order}"):
            yield number


def _checksum(values: PlainRow) -> str:
    """Return a hash of all values of a row, in the order of the columns."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _has_checksum_column(connection: sqlite3.Connection) -> bool:
    """Return whether the table has the column of checksums, which older versions did not write."""
    count = connection.execute("SELECT count(*) FROM pragma_table_info('rows') WHERE name = ?", (CHECKSUM,))
    return bool(count.fetchone()[0])


def _checksum_sql(connection: sqlite3.Connection) -> str:
    """Return the SQL expression for the checksum of a row, NULL if the table has none."""
    return CHECKSUM if _has_checksum_column(connection) else "NULL"


def _add_checksum_column(connection: sqlite3.Connection) -> None:
    """Add the column of checksums to a store of an older version, which can still use the store."""
    if not _has_checksum_column(connection):
        connection.execute(f"ALTER TABLE rows ADD COLUMN {CHECKSUM} TEXT")


def _require_not_sqlite(path: Path) -> None:
    """Refuse to overwrite an SQLite file, which may be a store, with a CSV file."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                raise StoreError(f"{path} is an SQLite file and may be a store; use another name for the CSV file.")


def _create_table(connection: sqlite3.Connection) -> None:
    """Create the table of rows in an empty file, and mark the file as a store of this version."""
    # Large columns are last: SQLite reads a row from its beginning, and should not read a history to get a score.
    large = [name for name in COLUMNS if name in STRUCTURED and name not in REQUIRED]
    columns = chain((name for name in COLUMNS if name not in large), large)
    definitions = ", ".join(f"{name} {_SQL_TYPES.get(KINDS[name], 'TEXT')}" for name in columns)
    connection.execute(f"CREATE TABLE rows ({definitions}, {CHECKSUM} TEXT, PRIMARY KEY (key))")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _query_value(connection: sqlite3.Connection, query: str) -> Any:
    """Execute a query that gives a single value, and return the value."""
    answer = connection.execute(query).fetchone()
    if answer is None:
        raise sqlite3.DatabaseError(f"no answer to {query}")
    return answer[0]


def _find_row(connection: sqlite3.Connection, key: Any) -> dict[str, Any] | None:
    """Return status, time and scores of the stored row of a run; None if there is none."""
    names = ("status", "finished", *_SCORES)
    values = connection.execute(f"SELECT {', '.join(names)} FROM rows WHERE key = ?", (key,)).fetchone()
    return None if values is None else dict(zip(names, values, strict=True))


def _write_row(connection: sqlite3.Connection, values: PlainRow) -> None:
    """Insert or replace a row with its checksum."""
    marks = ", ".join("?" * (len(values) + 1))
    names = ", ".join((*COLUMNS, CHECKSUM))
    connection.execute(f"INSERT OR REPLACE INTO rows ({names}) VALUES ({marks})", (*values, _checksum(values)))


def _replaces(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Return whether another row replaces ours: ours failed, and the other is done or a later failure."""
    newer = (theirs["finished"] or "") > (ours["finished"] or "")
    return bool(ours["status"] == "failed" and (theirs["status"] == "done" or newer))


def _contradicts(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Return whether two rows of the same run are done and have different scores."""
    return theirs["status"] == ours["status"] == "done" and any(theirs[name] != ours[name] for name in _SCORES)


def _sort_key(key: str, run: dict[str, Any]) -> tuple[str, ...]:
    """Return the sort key of a row; numbers are sorted by size, and missing fields are allowed."""
    names = ("dataset", "model", "subject", "seed")
    return (*(f"{run.get(name, '')!s:>9}" if name in names[2:] else str(run.get(name, "")) for name in names), key)


def read_rows(results: str | Path | Store | Iterable[Row]) -> list[Row]:
    """Read all rows of a store, of a CSV file, or of the CSV files in a folder.

    Rows of a folder are combined by the rules of :meth:`Store.import_csv`.  An iterable of rows is returned as a list.
    """
    if isinstance(results, Store):
        return results.rows()
    if not isinstance(results, str | Path):
        return list(results)
    path = Path(results)
    if path.suffix.lower() == ".csv":
        return read_csv(path)
    if not path.is_dir():
        return Store(path, create=False).rows()
    with TemporaryDirectory() as scratch:
        merged = Store(Path(scratch) / "results.sqlite")
        for file in sorted(path.glob("*.csv")):
            merged.import_csv(file)
        return merged.rows()

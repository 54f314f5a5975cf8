"""The store: a file that keeps the row of each run from the moment it ends."""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Self, get_args

from gbwatt._validation import check_one_of
from gbwatt.errors import ConflictWarning, StoreError
from gbwatt.experiments.row_io import COLUMNS, KINDS, REQUIRED, Flat, flatten, read_csv, restore, stream_csv, write_csv
from gbwatt.experiments.runs import STRUCTURED, Row, Run, Status

__all__ = ["ConflictWarning", "Store", "StoreError", "read_csv"]

#: Says in the header of an SQLite file that it is ours.
APPLICATION_ID = 0x47425761  # "GBWa"
#: Raised when the columns change.
VERSION = 1
PATIENCE = 60.0  # seconds that another process may take for its transaction

_READ, _WRITE = "BEGIN", "BEGIN IMMEDIATE"  # the second waits for its turn at once, so it cannot fail half way
_BATCH = 500  # keys in one query; SQLite allows 999 or more
_MAGIC = b"SQLite format 3\0"  # how such files begin
_SMALLEST = 512  # bytes of an SQLite file; a file of one byte it would take for an empty one, and overwrite
_SCORES = ("accuracy", "balanced_accuracy", "kappa", "auc", "loss")
_SQL_TYPES = {float: "REAL", int: "INTEGER"}
#: Of the values of a row.  Stores of older versions do not have it until they are written to.
CHECKSUM = "checksum"

_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full. The rows so far are kept; make room and start again.",
    sqlite3.SQLITE_IOERR: "the disk or its server does not take or give data. The rows so far are kept; look at it, "
    "whether it is full, and start again.",
    sqlite3.SQLITE_BUSY: f"another process has held it for {PATIENCE:g} s. Wait for its end; look whether it hangs.",
    sqlite3.SQLITE_READONLY: "it, or its folder, cannot be written. Change the permissions, or take another path.",
    sqlite3.SQLITE_CANTOPEN: "it is not there, or it or its folder cannot be opened. Look at path and permissions.",
    sqlite3.SQLITE_NOTADB: "it is no SQLite file, so no store. It was not touched; take another path, or "
    "`gbwatt store import` it, if it is a table of rows.",
    sqlite3.SQLITE_CORRUPT: "it is damaged, perhaps copied while it was written. It was not changed. Restore it from a "
    "backup, or `gbwatt store import` an exported CSV file into a new store, and run the benchmark again for what is "
    "missing; `gbwatt store recover` takes the rows that are whole.",
}
_DAMAGED = _CAUSES[sqlite3.SQLITE_CORRUPT]


class Store:
    """Rows by the keys of their runs, in an SQLite file.

    Parameters
    ----------
    path : path
    create : bool
        Make the file, and its folder, if it is not there, and require that it can be written.  Without, it must be
        there, and may be readable only.

    Notes
    -----
    Opening checks the structure of the file and the checksum of every row; a file or a row that was damaged since it
    was written is an error, and nothing is changed.  Rows of older versions, without a checksum, must have the key of
    their run; they get a checksum when the store is opened for writing.  Rows are checked in batches, each in a short
    transaction, so that other processes can write meanwhile.

    A call that writes is one transaction, on the disk when it returns.  Killed at any moment, a program loses the row
    that it was adding and no other: what is half done is undone by the next program that opens the file, from the
    journal beside it, which must be copied with it if it is there.

    Several processes of a machine may write at once: each waits for its turn.  No connection outlives a call, so a
    store may be used on both sides of a fork, in any thread, and sent to another process.

    The file has a rollback journal and no write-ahead log.  With a row every few seconds the log would save nothing;
    it would keep the last rows in a second file, which people forget to copy; and between machines that share a network
    file system it damages stores without a word.  The journal needs nothing there but locks that work, which some
    servers do not have: let one machine write, or give each its own store and :meth:`merge` them.

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
        self.path = Path(path).expanduser().absolute()
        self._check_path(create)
        if create:
            with self._session(_WRITE, create):  # an empty file becomes a store; in others nothing is written yet
                pass
        self._unsealed = self._check_content()  # checksums by key, of the rows that have none
        if create:
            with self._session(_WRITE) as connection:  # each time: missing permissions show before the first run
                connection.execute(f"PRAGMA user_version = {VERSION}")
            self._seal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close: no connection outlives a call."""

    def __len__(self) -> int:
        with self._session(_READ) as connection:
            return int(_one(connection, "SELECT count(*) FROM rows"))

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    # ---------------------------------------------------------------------------------------------------------- rows

    def add(self, row: Row) -> None:
        """Keep a row, unless there is one of its run that is done; a failed one is replaced."""
        values = flatten(row)
        self._seal()
        with self._session(_WRITE) as connection:
            _add_checksums(connection)
            known = _known(connection, row.key)
            if known is None or known["status"] == "failed":
                _put(connection, values)

    def get(self, key: str) -> Row | None:
        """The row of a run, if there is one."""
        return next(iter(self.rows([key])), None)

    def keys(self, status: Status | None = None) -> set[str]:
        """The keys of all rows, or of those that are done, or failed."""
        if status is not None:
            check_one_of("status", status, get_args(Status))
        with self._session(_READ) as connection:
            found = connection.execute("SELECT key FROM rows WHERE ?1 IS NULL OR status = ?1", (status,))
            return {key for (key,) in found}

    def rows(self, keys: Iterable[str] | None = None, structured: bool = True) -> list[Row]:
        """Rows by data set, model, subject, seed and key.

        Parameters
        ----------
        keys : iterable of str, optional
            Of which runs; those without a row are left out.  By default all.
        structured : bool
            Also histories and the other columns that are mappings or lists.  Without, which is much faster, they are
            None; ``run`` is there always.
        """
        columns = tuple(name for name in COLUMNS if structured or name not in STRUCTURED or name in REQUIRED)
        wanted = self.keys() if keys is None else set(keys)
        rows = [self._restored(values, columns) for values in self._stream(sorted(wanted), columns)]
        return sorted(rows, key=lambda row: _order(row.key, row.run))

    def _restored(self, values: Flat, columns: Sequence[str]) -> Row:
        try:
            return restore(values, columns)
        except StoreError as error:
            raise self._damaged(f"row {values[0]}: {error}") from error

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"store {self.path}: {_DAMAGED} ({what})")

    def forget(self, keys: Iterable[str]) -> int:
        """Remove rows of failed runs, so that these count as not tried; how many there were.

        A row that is done stays, even if it is named: another process may just have done it.
        """
        with self._session(_WRITE) as connection:
            remove = "DELETE FROM rows WHERE key = ? AND status = 'failed'"
            return connection.executemany(remove, [(key,) for key in keys]).rowcount

    # --------------------------------------------------------------------------------------------------- other places

    def export_csv(self, path: str | Path) -> None:
        """Write all rows, with histories, as text that :meth:`import_csv` and :func:`read_csv` read without loss.

        The order is that of :meth:`rows`, so that a file under version control changes where rows came.  The file is
        replaced at once or stays as it was.
        """
        with self._session(_READ) as connection:
            found = connection.execute("SELECT key, status, run FROM rows").fetchall()
        _require_no_database(Path(path).expanduser())
        rows = [self._restored(values, REQUIRED) for values in found]
        keys = [row.key for row in sorted(rows, key=lambda row: _order(row.key, row.run))]
        write_csv(path, self._stream(keys, COLUMNS))

    def import_csv(self, path: str | Path) -> int:
        """Add the rows of a CSV file, all or, if anything is wrong with it, none; how many were taken.

        What is done takes the place of what failed, and a failure that of an earlier one.  If the scores of a run that
        is done in both places differ, ours stay, with a :class:`ConflictWarning`.
        """
        return self._take(map(flatten, stream_csv(path)), path)

    def merge(self, other: str | Path) -> int:
        """Add the rows of another store, as :meth:`import_csv` those of a file; how many were taken."""
        theirs = Store(other, create=False)
        if theirs.path.samefile(self.path):
            return 0
        return self._take(theirs._stream(sorted(theirs.keys()), COLUMNS), other)

    def recover(self, damaged: str | Path) -> int:
        """Copy the undamaged rows of a damaged store; how many were taken."""
        return self._take(self._whole_rows(Path(damaged).expanduser().absolute()), damaged)

    def _whole_rows(self, path: Path) -> Iterator[Flat]:
        if not path.is_file():
            raise StoreError(f"{path} does not exist or is not a file; give the damaged store.")
        if path.samefile(self.path):
            raise StoreError(f"{path} is the store itself; give the damaged one, and a new file as --store.")
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                query = f"SELECT {_checksum_of(connection)}, {', '.join(COLUMNS)} FROM rows WHERE rowid = ?"
                numbers = sorted(set(_readable(connection, "ASC")) | set(_readable(connection, "DESC")))
                for number in numbers:
                    with suppress(sqlite3.Error, StoreError):  # this one is lost
                        written, *values = connection.execute(query, (number,)).fetchone() or (None,)
                        if values:
                            self._check_row(tuple(values), written)
                            yield tuple(values)
        except sqlite3.Error as error:
            raise StoreError(
                f"{path}: no row can be read ({error}); restore it from a backup or an exported CSV file."
            ) from error

    def _take(self, rows: Iterable[Flat], source: str | Path) -> int:
        taken, conflicts = 0, list[str]()
        self._seal()
        with self._session(_WRITE) as connection:
            _add_checksums(connection)
            for values in rows:
                theirs = dict(zip(COLUMNS, values, strict=True))
                ours = _known(connection, theirs["key"])
                if ours is None or _better(theirs, ours):
                    _put(connection, values)
                    taken += 1
                elif _contradicts(theirs, ours):
                    conflicts.append(f"{theirs['key']} (accuracy {ours['accuracy']} here, {theirs['accuracy']} there)")
        if conflicts:
            more = f" and {len(conflicts) - 10} more" if len(conflicts) > 10 else ""
            text = f"{source} has other scores than {self.path} for the same runs; those here were kept: "
            warnings.warn(text + ", ".join(conflicts[:10]) + more + ".", ConflictWarning, stacklevel=3)
        return taken

    # ----------------------------------------------------------------------------------------------------------- file

    def _stream(self, keys: Sequence[str], columns: Sequence[str]) -> Iterator[Flat]:
        """Values of rows in the order of the keys, in batches: nobody who writes has to wait for all of them."""
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            marks = ", ".join("?" * len(batch))
            with self._session(_READ) as connection:
                known = _checksum_of(connection)
                query = f"SELECT {known}, key, {', '.join(columns)} FROM rows WHERE key IN ({marks})"
                found = {key: (tuple(values), written) for written, key, *values in connection.execute(query, batch)}
            for values, written in (found[key] for key in batch if key in found):
                if columns == COLUMNS:
                    self._check_row(values, written)
                yield values

    def _check_content(self) -> dict[Any, str]:
        """Refuse a store that was damaged since it was written; the checksums of rows that have none, by their keys."""
        with self._session(_READ) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone() or ("no answer",)
        if found != "ok":
            raise self._damaged(f"SQLite: {found!s:.200}")
        missing: dict[Any, str] = {}
        for values, written in self._all_rows():
            self._check_row(values, written)
            if written is None:
                missing[values[0]] = _checksum(values)
        return missing

    def _all_rows(self) -> Iterator[tuple[Flat, object]]:
        """Values and checksum of each row, in batches: between them others may write."""
        last = -(2**63)
        while True:
            with self._session(_READ) as connection:
                query = f"SELECT rowid, {_checksum_of(connection)}, {', '.join(COLUMNS)} FROM rows WHERE rowid > ?"
                batch = connection.execute(f"{query} ORDER BY rowid LIMIT {_BATCH}", (last,)).fetchall()
            yield from ((tuple(values), written) for _, written, *values in batch)
            if len(batch) < _BATCH:
                return
            last = batch[-1][0]

    def _seal(self) -> None:
        """Write the checksums of rows that had none on opening; rows that others have replaced since are left out."""
        keys = list(self._unsealed)
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            with self._session(_WRITE) as connection:
                _add_checksums(connection)
                marks = ", ".join("?" * len(batch))
                query = f"SELECT {', '.join(COLUMNS)} FROM rows WHERE {CHECKSUM} IS NULL AND key IN ({marks})"
                found = [(_checksum(values), values[0]) for values in connection.execute(query, batch)]
                unchanged = [(checksum, key) for checksum, key in found if checksum == self._unsealed[key]]
                connection.executemany(f"UPDATE rows SET {CHECKSUM} = ? WHERE key = ?", unchanged)
        self._unsealed = {}

    def _check_row(self, values: Flat, written: object) -> None:
        """Refuse a row whose values are not those that were written."""
        if written is None:
            _require_own_key(self._restored(values, COLUMNS), self._damaged)
        elif written != _checksum(values):
            raise self._damaged(f"row {values[0]!s:.60}: its values are not those that were written")

    @contextmanager
    def _session(self, begin: str, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction on a connection of its own; what was written is undone unless the end is reached."""
        address = f"{self.path.as_uri()}?mode={'rwc' if create else 'rw'}"
        try:
            with closing(sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, uri=True)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")  # the end of the journal is on the disk, too
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute(begin)
                self._check_header(connection, create)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, sqlite3.Warning) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details
            cause = _CAUSES.get(code, "SQLite refuses it; if it is damaged, restore it from a backup or an export.")
            raise StoreError(f"store {self.path}: {cause} ({error})") from error

    def _check_path(self, create: bool) -> None:
        try:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            elif not self.path.exists():
                raise StoreError(f"there is no store {self.path}; look at the path, or do some runs first.")
            if self.path.is_dir():
                raise StoreError(f"{self.path} is a folder; a store is a file: {self.path / 'results.sqlite'}.")
            if self.path.exists() and 0 < self.path.stat().st_size < _SMALLEST:
                raise StoreError(f"store {self.path}: {_CAUSES[sqlite3.SQLITE_NOTADB]}")
        except OSError as error:
            raise StoreError(
                f"store {self.path}: its folder cannot be used ({error.strerror or error}); take another path."
            ) from error

    def _check_table(self, connection: sqlite3.Connection) -> None:
        """Require a plain table with the columns of a row, and nothing that would run when it is used."""
        found = connection.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall()
        tables = [kind for kind, name, _ in found if name == "rows"]
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('rows')")}
        if tables != ["table"] or any(kind == "trigger" for kind, _, _ in found) or not columns >= set(COLUMNS):
            missing = sorted(set(COLUMNS) - columns)
            what = f"no column {missing[0]}" if missing else "a view or a trigger in the place of a plain table"
            raise self._damaged(f"rows: {what}")

    def _check_header(self, connection: sqlite3.Connection, create: bool) -> None:
        application, version = (int(_one(connection, f"PRAGMA {name}")) for name in ("application_id", "user_version"))
        if application == APPLICATION_ID and version == VERSION:
            self._check_table(connection)
            return
        if application == APPLICATION_ID:
            raise StoreError(
                f"store {self.path} has version {version}, and this gbwatt knows {VERSION} only; update gbwatt, or "
                "take another path. It was not touched."
            )
        if application or version or _one(connection, "SELECT count(*) FROM sqlite_master"):
            raise StoreError(
                f"{self.path} is an SQLite file of another program (application_id {application}, user_version "
                f"{version}) and no store; take another path. It was not touched."
            )
        if not create:
            raise StoreError(f"{self.path} is empty, not yet a store; do some runs first.")
        _make(connection)


def _require_own_key(row: Row, damaged: Callable[[str], StoreError]) -> None:
    """Refuse a row of an older version that has another run than its key says."""
    try:
        key = Run.from_dict(row.run).key
    except (TypeError, ValueError, RecursionError) as error:
        raise damaged(f"row {row.key:.60}: its run cannot be read: {error!s:.100}") from error
    if key != row.key:
        raise damaged(f"row {row.key:.60}: its run has the key {key}")


def _readable(connection: sqlite3.Connection, order: str) -> Iterator[int]:
    """Numbers of rows, from one end, up to where the file cannot be read."""
    with suppress(sqlite3.Error):
        for (number,) in connection.execute(f"SELECT rowid FROM rows NOT INDEXED ORDER BY rowid {order}"):
            yield number


def _checksum(values: Flat) -> str:
    """Of all values of a row, in the order of the columns."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _has_checksums(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT count(*) FROM pragma_table_info('rows') WHERE name = ?", (CHECKSUM,))
    return bool(found.fetchone()[0])


def _checksum_of(connection: sqlite3.Connection) -> str:
    """What to select for the checksums of rows."""
    return CHECKSUM if _has_checksums(connection) else "NULL"


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Give a store of an older version the column of checksums; older versions can still use it."""
    if not _has_checksums(connection):
        connection.execute(f"ALTER TABLE rows ADD COLUMN {CHECKSUM} TEXT")


def _require_no_database(path: Path) -> None:
    """Refuse to write text over a store, this one or another."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                raise StoreError(f"{path} is an SQLite file, perhaps a store; take another name for the CSV file.")


def _make(connection: sqlite3.Connection) -> None:
    # The large columns last: SQLite goes through a row from its beginning, and should not pass a history for a score.
    large = [name for name in COLUMNS if name in STRUCTURED and name not in REQUIRED]
    columns = chain((name for name in COLUMNS if name not in large), large)
    definitions = ", ".join(f"{name} {_SQL_TYPES.get(KINDS[name], 'TEXT')}" for name in columns)
    connection.execute(f"CREATE TABLE rows ({definitions}, {CHECKSUM} TEXT, PRIMARY KEY (key))")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _one(connection: sqlite3.Connection, query: str) -> Any:
    found = connection.execute(query).fetchone()
    if found is None:
        raise sqlite3.DatabaseError(f"no answer to {query}")
    return found[0]


def _known(connection: sqlite3.Connection, key: Any) -> dict[str, Any] | None:
    names = ("status", "finished", *_SCORES)
    found = connection.execute(f"SELECT {', '.join(names)} FROM rows WHERE key = ?", (key,)).fetchone()
    return None if found is None else dict(zip(names, found, strict=True))


def _put(connection: sqlite3.Connection, values: Flat) -> None:
    marks = ", ".join("?" * (len(values) + 1))
    names = ", ".join((*COLUMNS, CHECKSUM))
    connection.execute(f"INSERT OR REPLACE INTO rows ({names}) VALUES ({marks})", (*values, _checksum(values)))


def _better(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    newer = (theirs["finished"] or "") > (ours["finished"] or "")
    return bool(ours["status"] == "failed" and (theirs["status"] == "done" or newer))


def _contradicts(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    return theirs["status"] == ours["status"] == "done" and any(theirs[name] != ours[name] for name in _SCORES)


def _order(key: str, run: dict[str, Any]) -> tuple[str, ...]:
    """Where a row stands among others; numbers by size, and no error for a run that lacks something."""
    names = ("dataset", "model", "subject", "seed")
    return (*(f"{run.get(name, '')!s:>9}" if name in names[2:] else str(run.get(name, "")) for name in names), key)

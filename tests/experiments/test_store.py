"""The store keeps what it acknowledged, whatever happens, and touches nothing that is not its own."""

from __future__ import annotations

import math
import os
import pickle
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from gbwatt.errors import ConflictWarning, ParameterError
from gbwatt.experiments import store as module
from gbwatt.experiments.runs import STRUCTURED
from gbwatt.experiments.store import Store, StoreError
from tests.experiments.rows import full, make

# Adds rows FIRST ... LAST - 1 to the store PATH, and says each key when it is in.
WRITER = """
import sys
from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.store import Store

store = Store(sys.argv[1])
for seed in range(int(sys.argv[2]), int(sys.argv[3])):
    run = Run("simulated-mi", 1, "gbwatt", seed=seed, data="")
    store.add(Row(run.key, "done", run.to_dict(), accuracy=0.5, history={"valid_loss": [1 / 3] * 300}))
    print(run.key, flush=True)
"""


def writer(*arguments):
    command = [sys.executable, "-c", WRITER, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.sqlite")


def integrity(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone()[0]


# ---------------------------------------------------------------------------------------------------------------- rows


def test_done_rows_stay_and_failed_ones_are_replaced(store):
    failed, again, done, other = (
        make(status="failed", traceback="first"),
        make(status="failed", traceback="second"),
        make(accuracy=0.7),
        make(accuracy=0.8),
    )
    kept = []
    for row in (failed, again, done, failed, other):
        store.add(row)
        kept.append(store.get(done.key))
    assert kept == [failed, again, done, done, done]
    assert len(store) == 1


def test_keys_are_those_of_a_status(store):
    done, failed = make(0), make(1, "failed")
    store.add(done)
    store.add(failed)
    assert store.keys() == {done.key, failed.key}
    assert store.keys("done") == {done.key}
    assert store.keys("failed") == {failed.key}
    with pytest.raises(ParameterError, match="Did you mean 'failed'"):
        store.keys("fail")


def test_only_failed_rows_are_forgotten(store):
    rows = [make(0), make(1, "failed"), make(2, "failed")]
    for row in rows:
        store.add(row)
    assert store.forget([rows[0].key, rows[1].key, "unknown"]) == 1
    assert store.keys() == {rows[0].key, rows[2].key}


def test_rows_come_in_the_same_order_whenever_they_were_added(store):
    rows = [make(seed, subject=subject, dataset=name) for name in "ab" for subject in (2, 10) for seed in (1, 2, 10)]
    for row in rows[::-1]:
        store.add(row)
    assert store.rows() == rows
    assert store.rows([rows[3].key, "unknown", rows[1].key, rows[3].key]) == [rows[1], rows[3]]
    assert store.rows([]) == []


def test_rows_without_structure_have_their_scores_and_their_run(store):
    row = full()
    store.add(row)
    (found,) = store.rows(structured=False)
    assert found == row._replace(**dict.fromkeys(STRUCTURED - {"run"}))
    assert found.run["seed"] == 0


# ----------------------------------------------------------------------------------------------------------- processes


def test_two_processes_may_write_at_once(tmp_path):
    path = tmp_path / "results.sqlite"
    both = [writer(path, 0, 200), writer(path, 200, 400)]  # and make the file at once
    said = {key for process in both for key in process.communicate()[0].split()}
    assert [process.returncode for process in both] == [0, 0]
    assert len(said) == 400
    assert Store(path).keys("done") == said
    assert integrity(path) == "ok"


def test_a_killed_process_loses_no_row_that_it_acknowledged(tmp_path):
    path, said = tmp_path / "results.sqlite", set()
    for start in range(6):
        process = writer(path, 1000 * start, 1000 * start + 1000)
        said |= {process.stdout.readline().strip() for _ in range(3 + start)}
        process.kill()
        said |= set(process.communicate()[0].split())
        assert process.returncode < 0
        kept = Store(path, create=False).rows()  # first: who opens it applies what the killed one left
        assert integrity(path) == "ok"
        assert said <= {row.key for row in kept}
        assert len(kept) - len(said) <= start + 1  # at most the one of each process that was not yet acknowledged
        assert all(len(row.history["valid_loss"]) == 300 for row in kept)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_store_may_be_used_on_both_sides_of_a_fork(tmp_path):
    script = """
import os, sys
from gbwatt.experiments.runs import Row
from gbwatt.experiments.store import Store

store = Store(sys.argv[1])
store.add(Row("before", "done", {}))
child = os.fork()
for i in range(20):
    store.add(Row(f"{'parent' if child else 'child'} {i}", "done", {}))
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""
    path = tmp_path / "results.sqlite"
    subprocess.run([sys.executable, "-c", script, path], check=True)
    assert len(Store(path)) == 41
    assert integrity(path) == "ok"


def test_no_connection_outlives_a_call(store, monkeypatch, tmp_path):
    opened = []

    class Counted(sqlite3.Connection):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            opened.append(self)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, factory=Counted, **options))
    store.add(make())
    store.rows()
    store.export_csv(tmp_path / "rows.csv")
    with pytest.raises(StoreError):
        store.import_csv(tmp_path)
    assert len(opened) >= 4
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_a_store_can_be_sent_to_another_process(store):
    store.add(make())
    with pickle.loads(pickle.dumps(store)) as copy:
        assert copy.rows() == store.rows() == [make()]


def test_who_cannot_have_a_turn_says_who_is_in_the_way(store, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has locked it"):
            store.add(make())
    store.add(make())
    assert len(store) == 1


# --------------------------------------------------------------------------------------------------------- wrong files


def test_a_store_of_a_newer_version_is_not_touched(store):
    store.add(make())
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    before = store.path.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError, match=r"version 2.*supports only 1; update gbwatt"):
            Store(store.path, create)
    with pytest.raises(StoreError, match="version 2"):  # even if another program raised it in the meantime
        store.add(make(1))
    assert store.path.read_bytes() == before


def test_an_sqlite_file_of_another_program_is_not_touched(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rows (key TEXT)")
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError, match=r"other\.sqlite is an SQLite file of another program"):
            Store(path, create)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["x", "key,status,run\n", "key,status,run\n" * 1000])
def test_a_text_file_is_not_touched(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    for create in (True, False):
        with pytest.raises(StoreError, match=r"rows\.csv: it is not an SQLite file.*gbwatt store import"):
            Store(path, create)
    assert path.read_text() == text


def test_a_damaged_store_is_an_error_that_says_so(store):
    for seed in range(20):
        store.add(full(seed))
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    store.path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        store.rows()


@pytest.fixture
def changed(store):
    """A store in which a digit of a history is another than was written, and its rows before."""
    for seed in range(20):
        store.add(make(seed, accuracy=0.5, history={"valid_loss": [0.123456789, seed / 7]}))
    rows = store.rows()
    content = store.path.read_bytes()
    assert content.count(b"0.123456789") == 20
    store.path.write_bytes(content.replace(b"0.123456789", b"0.123456780", 1))
    return store.path, rows


@pytest.mark.parametrize("create", [True, False])
def test_a_changed_value_is_noticed_on_opening_and_nothing_is_written(changed, create):
    path, rows = changed
    assert integrity(path) == "ok"  # SQLite does not see it
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"damaged.*gbwatt store import.*row [0-9a-f]{32}") as caught:
        Store(path, create)
    assert any(row.key in str(caught.value) for row in rows)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_rows_that_are_whole_are_recovered_from_a_damaged_store(changed, tmp_path):
    path, rows = changed
    new = Store(tmp_path / "new.sqlite")
    assert new.recover(path) == 19
    found = new.rows()
    assert len(found) == 19
    assert all(row in rows for row in found)
    with pytest.raises(StoreError, match=r"new\.sqlite is the store itself"):
        new.recover(new.path)
    with pytest.raises(StoreError, match=r"none\.sqlite does not exist"):
        new.recover(tmp_path / "none.sqlite")


def test_rows_behind_a_lost_page_are_recovered(store, tmp_path):
    for seed in range(40):
        store.add(make(seed, traceback="x" * 3000))
    content = bytearray(store.path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    store.path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Store(store.path)
    new = Store(tmp_path / "new.sqlite")
    assert 35 <= new.recover(store.path) < 40
    assert all(row.traceback == "x" * 3000 for row in new.rows())


def without_checksums(path):
    """Make a store of what older versions wrote."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE rows DROP COLUMN checksum")


def columns(path):
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('rows')")}


def test_stores_of_older_versions_are_read_and_get_checksums_when_they_are_written(store):
    rows = [full(seed) for seed in range(3)]
    for row in rows:
        store.add(row)
    without_checksums(store.path)
    before = store.path.read_bytes()
    assert Store(store.path, create=False).rows() == rows
    assert store.path.read_bytes() == before
    Store(store.path, create=False).add(full(3))
    assert module.CHECKSUM in columns(store.path)
    assert Store(store.path).rows() == [*rows, full(3)]
    assert sealed(store.path) == 4


def sealed(path):
    """How many rows have a checksum."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(checksum) FROM rows").fetchone()[0]


def execute(path, statement):
    """Change a store from outside."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        connection.execute(statement)


@pytest.mark.parametrize("column", [True, False])
def test_later_damage_to_rows_of_older_versions_is_noticed(store, monkeypatch, column):
    monkeypatch.setattr(module, "_BATCH", 2)
    for seed in range(5):
        store.add(make(seed, accuracy=0.5))
    if column:  # the row of an older version in a store that has the column
        execute(store.path, "UPDATE rows SET checksum = NULL")
    else:
        without_checksums(store.path)
    rows = store.rows()
    assert Store(store.path).rows() == rows
    assert sealed(store.path) == 5
    execute(store.path, f"UPDATE rows SET accuracy = 0.75 WHERE key = '{make(3).key}'")
    with pytest.raises(StoreError, match=f"damaged.*row {make(3).key}"):
        Store(store.path)


def test_a_row_that_is_replaced_while_an_old_store_is_opened_gets_no_wrong_checksum(store, monkeypatch):
    store.add(make(1, accuracy=0.5))
    store.add(make(2, accuracy=0.5))
    without_checksums(store.path)
    seal = Store._write_checksums

    def late(self):
        execute(self.path, f"UPDATE rows SET accuracy = 0.25 WHERE key = '{make(1).key}'")  # by an older version
        seal(self)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "_write_checksums", late)
        Store(store.path)
    assert sealed(store.path) == 1
    assert Store(store.path).get(make(1).key).accuracy == 0.25
    assert sealed(store.path) == 2


@pytest.mark.parametrize("old", [True, False])
def test_others_can_write_while_rows_are_checked(store, monkeypatch, old):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "_BATCH", 2)
    for seed in range(5):
        store.add(make(seed))
    if old:
        without_checksums(store.path)
    check, written = Store._check_row, []

    def meanwhile(self, *row):
        execute(self.path, "PRAGMA user_version = 1")  # takes the lock that every write takes
        written.append(row)
        check(self, *row)

    monkeypatch.setattr(Store, "_check_row", meanwhile)
    Store(store.path)
    assert len(written) == 5


def test_a_row_of_an_older_version_must_have_the_key_of_its_run(store):
    store.add(make(1))
    without_checksums(store.path)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("""UPDATE rows SET run = replace(run, '"seed":1', '"seed":2')""")
    with pytest.raises(StoreError, match=f"row {make(1).key}: its run has the key {make(2).key}"):
        Store(store.path)


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE rows RENAME TO others", "CREATE VIEW rows AS SELECT * FROM others"],
        ["CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END"],
        ["ALTER TABLE rows DROP COLUMN history"],
    ],
)
def test_a_store_with_another_structure_is_refused(store, statements):
    store.add(make())
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    for create in (True, False):
        with pytest.raises(StoreError, match="damaged"):
            Store(store.path, create)


def test_numbers_that_sqlite_changes_have_the_checksum_of_what_it_keeps(store):
    row = make(accuracy=1, kappa=-0.0, loss=math.nan, auc=0.1, seconds=2.0, epochs=3, traceback="\x00é\ud800")
    store.add(row)
    assert Store(store.path).get(row.key).kappa == 0
    with pytest.raises(StoreError, match="parameters"):
        store.add(make(1, parameters=2**63))


def test_opening_a_store_of_thousands_of_rows_is_fast(tmp_path):
    store = Store(tmp_path / "results.sqlite")
    history = {"valid_loss": [n / 7 for n in range(200)]}
    store._add_rows((module.flatten(make(seed, history=history)) for seed in range(3000)), "here")
    started = time.process_time()
    Store(store.path)
    assert time.process_time() - started < 3


def test_a_folder_is_no_store(tmp_path):
    for create in (True, False):
        with pytest.raises(StoreError, match="is a folder"):
            Store(tmp_path, create)


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="its folder cannot be used"):
        Store(tmp_path / "file" / "results.sqlite")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_folder_that_cannot_be_written_shows_at_once(tmp_path):
    store = Store(tmp_path / "folder" / "results.sqlite")
    store.add(make())
    store.path.parent.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="cannot be"):
            Store(store.path)
        with pytest.raises(StoreError, match="cannot be"):
            Store(store.path.with_name("new.sqlite"))
        assert Store(store.path, create=False).rows() == [make()]
    finally:
        store.path.parent.chmod(0o700)


def test_a_store_that_cannot_be_written_shows_at_once_and_can_be_read(store, monkeypatch):
    store.add(make())
    connect = sqlite3.connect
    locked = re.compile("mode=rwc?$")  # as SQLite opens a file that it has no permission to write
    monkeypatch.setattr(sqlite3, "connect", lambda address, **how: connect(locked.sub("mode=ro", address), **how))
    with pytest.raises(StoreError, match="not writable"):
        Store(store.path)
    with pytest.raises(StoreError, match="not writable"):
        store.add(make(1))
    assert Store(store.path, create=False).rows() == [make()]


def test_a_missing_file_is_made_only_if_asked_for(tmp_path):
    path = tmp_path / "new folder" / "results?#%41.sqlite"
    with pytest.raises(StoreError, match="does not exist"):
        Store(path, create=False)
    assert not path.parent.exists()
    Store(path).add(make())
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert len(Store(path, create=False)) == 1


def test_an_empty_file_becomes_a_store_only_if_asked_for(tmp_path):
    path = tmp_path / "results.sqlite"
    path.touch()  # as of a process that was killed when it made it
    with pytest.raises(StoreError, match="is empty"):
        Store(path, create=False)
    Store(path).add(make())
    assert len(Store(path, create=False)) == 1


def test_a_store_that_was_removed_is_not_made_again_without_a_word(store):
    store.path.unlink()
    with pytest.raises(StoreError, match="does not exist"):
        store.add(make())
    assert not store.path.exists()


def test_a_full_disk_keeps_the_rows_so_far(store, monkeypatch):
    connect = sqlite3.connect

    def limited(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 40")
        return connection

    def fill():
        for seed in range(1000):
            store.add(make(seed, traceback="x" * 10_000))

    with monkeypatch.context() as small:
        small.setattr(sqlite3, "connect", limited)
        with pytest.raises(StoreError, match=r"disk is full\. The rows written so far are kept"):
            fill()
    added = len(store)
    assert 5 < added < 20
    assert store.rows() == [make(seed, traceback="x" * 10_000) for seed in range(added)]
    assert integrity(store.path) == "ok"
    store.add(make(added))
    assert len(store) == added + 1


def test_a_disk_that_takes_no_more_keeps_the_rows_so_far(tmp_path):
    pytest.importorskip("resource", reason="limits on files are of Unix")
    script = """
import resource, sys
from gbwatt.experiments.runs import Row
from gbwatt.experiments.store import Store, StoreError

store = Store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for i in range(1000):
    try:
        store.add(Row(f"{i}", "failed", {}, traceback="x" * 10_000))
    except StoreError as error:
        print(i)
        sys.exit(str(error))
"""
    path = tmp_path / "results.sqlite"
    ended = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "The rows written so far are kept" in ended.stderr
    assert len(Store(path)) == int(ended.stdout) > 10
    assert integrity(path) == "ok"


# --------------------------------------------------------------------------------------------------------------- merge


def test_merge_takes_what_is_new_and_what_is_better(tmp_path):
    ours, theirs = Store(tmp_path / "ours.sqlite"), Store(tmp_path / "theirs.sqlite")
    both, old, new = make(0, accuracy=0.5), "2025-01-01T00:00:00+00:00", "2025-02-01T00:00:00+00:00"
    for row in (both, make(1), make(2, "failed"), make(3, accuracy=0.7), make(4, "failed", finished=old)):
        ours.add(row)
    ours.add(make(5, "failed", finished=new))
    for row in (both, make(2, accuracy=0.6), make(3, "failed"), make(4, "failed", finished=new), make(6)):
        theirs.add(row)
    theirs.add(make(5, "failed", finished=old))
    before = theirs.rows()
    assert ours.merge(theirs.path) == 3
    better = [make(2, accuracy=0.6), make(3, accuracy=0.7), *(make(i, "failed", finished=new) for i in (4, 5))]
    assert ours.rows() == [both, make(1), *better, make(6)]
    assert ours.merge(theirs.path) == 0
    assert theirs.rows() == before


def test_contradictions_keep_ours_and_name_the_key(store, tmp_path):
    theirs = Store(tmp_path / "theirs.sqlite")
    for seed in range(12):
        store.add(make(seed, accuracy=0.5, loss=math.nan))
        theirs.add(make(seed, accuracy=0.25 if seed else 0.5, loss=math.nan))
    theirs.export_csv(tmp_path / "theirs.csv")
    for take in (lambda: store.merge(theirs.path), lambda: store.import_csv(tmp_path / "theirs.csv")):
        with pytest.warns(ConflictWarning) as caught:
            assert take() == 0
        (text,) = [str(warning.message) for warning in caught]
        assert caught[0].filename == __file__
        assert "and 1 more" in text
        assert text.count("accuracy 0.5 kept, 0.25 ignored") == 10
        assert any(make(seed).key in text for seed in range(1, 12))
        assert make(0).key not in text
    assert {row.accuracy for row in store.rows()} == {0.5}


def test_merge_with_itself_or_with_no_store_changes_nothing(store, tmp_path):
    store.add(make())
    assert store.merge(store.path) == 0
    with pytest.raises(StoreError, match="does not exist"):
        store.merge(tmp_path / "other.sqlite")
    assert store.rows() == [make()]

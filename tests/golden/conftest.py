"""Files and numbers that must keep working: what was written once is read, and gives what it gave."""

from __future__ import annotations

import pytest

from tests.golden import program

collect_ignore_glob = ["data/*", "write_fixtures.py"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, without recordings of the machine."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GBWATT_DATA", str(tmp_path / "none"))
    return folder


@pytest.fixture
def gbwatt(here):
    """Run a command in an empty folder, within this process."""
    return program.run

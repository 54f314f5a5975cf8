"""A user's own recordings, small enough to train on in a moment."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from gbwatt import cli


def write_recordings(file, seed=0, channels=("C3", "Cz", "C4"), classes=("left", "right"), subjects=2):
    """Trials of two classes in 64 samples, that differ in the power of a channel; 40 of each subject."""
    rng = np.random.default_rng(seed)
    n = 40 * subjects
    y = np.tile(classes, n // 2)
    x = rng.standard_normal((n, len(channels), 64)) * 10
    x[y == classes[0], 0] *= 3
    subject = np.repeat(np.arange(1, subjects + 1), 40)
    np.savez(file, X=x, y=y, sfreq=100, ch_names=list(channels), subject=subject)
    return str(file)


def write_recording(file, seed=0):
    """A recording of a minute, two channels at 100 Hz, with events of two classes each second."""
    import mne

    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 6000)) * 1e-5
    marks = [f"T{1 + place % 2}" for place in range(58)]
    for place in range(0, 58, 2):
        x[0, 100 * place + 50 : 100 * place + 150] *= 3
    raw = mne.io.RawArray(x, mne.create_info(["C3", "C4"], 100.0, "eeg"), verbose="error")
    raw.set_annotations(mne.Annotations(np.arange(58) + 0.5, 0.0, marks))
    raw.save(file, verbose="error")
    return str(file)


@pytest.fixture
def recordings(tmp_path):
    return write_recordings(tmp_path / "mine.npz")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder, within this process; what it raises is in the result."""
    (tmp_path / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "here")

    def invoke(*arguments):
        return CliRunner().invoke(cli.app, [str(a) for a in arguments], env={"COLUMNS": "160"})

    return invoke


@pytest.fixture
def run_json(run):
    """The document that a command prints on stdout."""

    def invoke(*arguments):
        result = run(*arguments, "--json")
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.stdout)

    return invoke


@pytest.fixture
def refused(capsys, monkeypatch):
    """The message on stderr with which the program leaves, with exit code 2 and nothing on stdout."""

    def invoke(*arguments):
        monkeypatch.setattr(sys, "argv", ["gbwatt", *map(str, arguments), "--json"])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capsys.readouterr()
        assert left.value.code == 2, err
        assert out == ""
        assert "Traceback" not in err
        assert err.startswith("error: ")
        assert err.count("error") == 1
        return err

    return invoke

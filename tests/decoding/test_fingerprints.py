"""A model recognises the trials that it was trained on, in whatever file and unit, and takes no others for them."""

from __future__ import annotations

import json

import edfio
import mne
import numpy as np
import pytest

from gbwatt import _io
from gbwatt.data import load
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.trials import Trials
from gbwatt.decoding import EEGDecoder, fingerprints
from gbwatt.decoding.fingerprints import TrialFingerprints
from gbwatt.errors import ModelFileError
from tests.decoding.tiny import make_trials

NAMES = ("simulated-mi", "simulated-ssvep", "simulated-ern")


def simulated(name: str) -> Trials:
    trials = load(name, 2)
    return trials[: min(len(trials), 300)]


def known(trials: Trials) -> TrialFingerprints:
    """Of a model that was trained on the first half of the trials and validated on the next quarter."""
    codes, n = fingerprints.fingerprints(trials.X), len(trials)
    return TrialFingerprints(codes[: n // 2], codes[n // 2 : 3 * n // 4])


def expected(n: int) -> list[str]:
    parts = {"training": n // 2, "validation": 3 * n // 4 - n // 2, "unseen": n - 3 * n // 4}
    return [use for use, count in parts.items() for _ in range(count)]


def as_fif(trials, folder):
    trials.to_mne().save(folder / "x-epo.fif", fmt="single", verbose="error")
    return mne.read_epochs(folder / "x-epo.fif", verbose="error").get_data()  # volts


def as_npz(trials, folder):
    write_npz(trials, folder / "x.npz")
    return load(folder / "x.npz", 2).X


def as_edf(trials, folder):
    """One recording of all trials, 16 bits over a physical range of 3.2 mV, cut again."""
    n, n_chans, n_times = trials.shape
    samples = trials.X.transpose(1, 0, 2).reshape(n_chans, -1).astype(float)
    seconds = -(-samples.shape[1] // int(trials.sfreq))
    samples = np.pad(samples, [(0, 0), (0, int(seconds * trials.sfreq) - samples.shape[1])])
    limits = (-1638.4, 1638.35)
    signals = [
        edfio.EdfSignal(row.clip(*limits), trials.sfreq, label=name, physical_dimension="uV", physical_range=limits)
        for name, row in zip(trials.ch_names, samples, strict=True)
    ]
    edfio.Edf(signals).write(folder / "x.edf")
    raw = mne.io.read_raw_edf(folder / "x.edf", preload=True, verbose="error")
    return raw.get_data()[:, : n * n_times].reshape(n_chans, n, n_times).transpose(1, 0, 2)


COPIES = {
    "fif, volts": as_fif,
    "npz, µV": as_npz,
    "edf, 0.05 µV": as_edf,
    "whole µV": lambda trials, _: np.round(trials.X).astype(np.int16),
    "float64 volts": lambda trials, _: trials.X.astype(float) * 1e-6,
    "nV": lambda trials, _: trials.X * 1e3,
    "with an offset in each channel": lambda trials, _: trials.X + 100 * np.arange(trials.shape[1])[:, None],
}


@pytest.mark.parametrize("name", NAMES)
def test_all_trials_are_recognised_in_every_container_and_no_others(name, tmp_path):
    trials = simulated(name)
    for copy, made in COPIES.items():
        assert known(trials).used_for(made(trials, tmp_path)).tolist() == expected(len(trials)), copy


@pytest.mark.parametrize("name", NAMES)
def test_drifts_do_not_make_different_trials_alike(name):
    trials = simulated(name)
    rng = np.random.default_rng(0)
    drift = np.linspace(0, 1, trials.shape[2]) ** 2 * rng.choice([-500, 500, 800], (len(trials), 1, 1))
    drifting = trials.replace(X=trials.X + drift)
    assert known(drifting).used_for(np.round(drifting.X)).tolist() == expected(len(trials))


def test_an_evoked_response_that_all_trials_share_does_not_make_them_alike():
    trials = simulated("simulated-ern")
    wave = 30 * np.sin(2 * np.pi * 8 * trials.times)  # several times as strong as what else is there
    evoked = trials.replace(X=trials.X + wave)
    assert known(evoked).used_for(evoked.X * 1e-6).tolist() == expected(len(trials))


def test_flat_trials_are_unknown_if_there_were_flat_ones_in_training():
    trials = simulated("simulated-ssvep")
    flat = np.zeros_like(trials.X[:1])
    assert known(trials).used_for(flat).tolist() == ["unseen"]
    x = np.concatenate([flat, trials.X[:9]])
    kept = TrialFingerprints(fingerprints.fingerprints(x), fingerprints.fingerprints(x[:0]))
    assert kept.used_for(x).tolist() == ["unknown"] + ["training"] * 9


def test_a_flat_or_a_noisy_channel_does_not_matter():
    trials = simulated("simulated-mi")
    x = trials.X.copy()
    x[:, 0] = 0
    x[:, 1] *= 1000
    changed = trials.replace(X=x)
    assert known(changed).used_for(np.round(x)).tolist() == expected(len(trials))


def test_signs_are_the_same_on_every_machine():
    assert fingerprints._random_signs(2, 3)[:, :8].astype(int).tolist() == [
        [1, -1, -1, -1, -1, -1, -1, 1],
        [1, -1, 1, -1, -1, -1, 1, 1],
        [1, 1, -1, 1, 1, 1, 1, 1],
        [1, -1, 1, 1, -1, -1, -1, 1],
        [1, -1, -1, -1, -1, -1, 1, 1],
        [-1, 1, -1, -1, -1, 1, 1, 1],
    ]


def test_a_saved_model_knows_its_trials(decoder, trials, tmp_path):
    x, y = trials
    fitted = decoder(max_epochs=1, validation=[0, 1, 2, 3]).fit(x[:30], y[:30])
    fitted.save_pretrained(tmp_path / "with")
    fitted.save_pretrained(tmp_path / "without", fingerprints=False)
    for one in (fitted, EEGDecoder.from_pretrained(tmp_path / "with")):
        assert one.used_for(1e-6 * x).tolist() == ["validation"] * 4 + ["training"] * 26 + ["unseen"] * 10
    assert EEGDecoder.from_pretrained(tmp_path / "without").used_for(x).tolist() == ["unknown"] * 40
    small = (tmp_path / "with" / "config.json").stat().st_size - (tmp_path / "without" / "config.json").stat().st_size
    assert small < 30 * 48 + 200  # 43 letters a trial


def test_too_many_trials_are_not_kept(decoder, monkeypatch):
    monkeypatch.setattr(fingerprints, "MOST", 39)
    assert decoder(max_epochs=1).fit(*make_trials()).fingerprints_ is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept.update(train=kept["train"][:-5]),
        lambda kept: kept.update(train=3),
        lambda kept: kept.pop("valid"),
        lambda kept: kept.update(version="1"),
        lambda kept: kept.update(valid="ä"),
    ],
)
def test_damaged_fingerprints_are_refused(decoder, trials, tmp_path, damage):
    decoder(max_epochs=1).fit(*trials).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    damage(config["extra"]["estimator"]["fingerprints"])
    (tmp_path / "config.json").write_text(json.dumps(_io.sealed(json.dumps(config))))
    with pytest.raises(ModelFileError, match="fingerprints"):
        EEGDecoder.from_pretrained(tmp_path)


def test_fingerprints_of_a_later_version_are_left_alone(decoder, trials, tmp_path):
    decoder(max_epochs=1).fit(*trials).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["extra"]["estimator"]["fingerprints"]["version"] = 2
    (tmp_path / "config.json").write_text(json.dumps(_io.sealed(json.dumps(config))))
    assert set(EEGDecoder.from_pretrained(tmp_path).used_for(trials[0])) == {"unknown"}

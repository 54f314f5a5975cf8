"""The name of the montage, which changed from one version of MNE-Python to another."""

from __future__ import annotations

import mne
import pytest

from gbwatt.data.montage import montage_name


@pytest.mark.parametrize(
    "known, expected",
    [
        (["biosemi64", "standard_1005"], "standard_1005"),
        (["colin27_1005", "standard_1005"], "colin27_1005"),
        (["colin27_1005", "fsaverage_1005"], "colin27_1005"),
    ],
)
def test_name_is_one_that_the_installed_version_has(monkeypatch, known, expected):
    monkeypatch.setattr(mne.channels, "get_builtin_montages", lambda: known)
    assert montage_name() == expected


def test_montage_of_that_name_has_the_electrodes_of_all_sets():
    from gbwatt.data.sets import bcic2a, ern, mamem, physionet

    names = set(mne.channels.make_standard_montage(montage_name()).ch_names)
    for channels in (bcic2a.CHANNELS, ern.CHANNELS, tuple(mamem.ELECTRODES), physionet.CHANNELS):
        assert set(channels) <= names

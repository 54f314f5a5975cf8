"""The name of the montage, which changed from one version of MNE-Python to another."""

from __future__ import annotations

import mne
import pytest

from gbwatt.data.montage import electrode_name, montage_name


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
    from gbwatt.data.sets import bci2b, bcic2a, ern, mamem, p300, physionet

    names = set(mne.channels.make_standard_montage(montage_name()).ch_names)
    named = (bcic2a.CHANNELS, ern.CHANNELS, tuple(mamem.ELECTRODES), physionet.CHANNELS)
    for channels in (*named, bci2b.CHANNELS, p300.BI2012_CHANNELS):
        assert set(channels) <= names


def test_what_fills_up_a_name_is_left_out_and_the_rest_stays():
    assert [electrode_name(label) for label in ("Fc5.", "C3..", " Oz. ", "EEG.Cz", "T10")] == [
        "Fc5",
        "C3",
        " Oz",
        "EEG.Cz",
        "T10",
    ]

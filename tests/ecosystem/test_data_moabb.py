"""Data sets of MOABB as trials, on MOABB's own simulated data: no network."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt.data.formats.moabb import read_moabb
from gbwatt.data.trials import Trials
from gbwatt.errors import MissingFileError, ParameterError

pytestmark = pytest.mark.ecosystem


@pytest.fixture(autouse=True)
def moabb():
    return pytest.importorskip("moabb", reason="MOABB is not installed: pip install 'gbwatt[moabb]'")


def fake(paradigm: str = "imagery", events=("left_hand", "right_hand", "feet"), **options):
    from moabb.datasets.fake import FakeDataset

    sizes = {"n_subjects": 3, "n_sessions": 2, "n_runs": 2, "n_events": 12, "duration": 60, "seed": 0}
    return FakeDataset(list(events), paradigm=paradigm, **{**sizes, **options})


def test_trials_have_moabbs_sessions_runs_and_channels():
    trials = read_moabb(fake(), 2)
    assert trials.shape == (48, 3, 3 * 128)  # 3 s without the sample at the end
    assert trials.ch_names == ("C3", "Cz", "C4")
    assert set(trials.subject.tolist()) == {2}
    assert list(trials.counts()) == ["0", "1"]
    assert set(trials.run.tolist()) == {"0", "1"}
    assert trials.class_names == ("left_hand", "right_hand", "feet")
    assert (trials.sfreq, trials.tmin, trials.unit, trials.dataset) == (128.0, 0.0, "µV", "FakeDataset")


def test_trials_are_those_that_the_paradigm_gives():
    from moabb.paradigms import MotorImagery

    x, labels, metadata = MotorImagery().get_data(fake(), [1])
    trials = read_moabb(fake(), 1)
    np.testing.assert_allclose(trials.X, x[..., :-1], rtol=1e-4, atol=1e-3)
    assert trials.labels.tolist() == labels.tolist()
    again = Trials.from_moabb(x, labels, metadata, trials.ch_names, 128)
    assert again.session.tolist() == trials.session.tolist()
    np.testing.assert_allclose(again.to_moabb()[0], x, rtol=1e-6)


def test_what_the_paradigm_filtered_is_recorded():
    assert read_moabb(fake(), 1).steps == (
        {"step": "moabb paradigm", "paradigm": "MotorImagery", "fmin": 8.0, "fmax": 32.0},
    )
    open_ = read_moabb(fake(), 1, band=(None, None))
    assert (open_.steps[0]["fmin"], open_.steps[0]["fmax"]) == (None, None)
    assert open_.X.std() > 1.2 * read_moabb(fake(), 1).X.std()  # less is filtered away


def test_resampling_is_done_and_recorded():
    trials = read_moabb(fake(), 1, resample=64.0)
    assert (trials.sfreq, trials.shape[2], trials.steps[0]["resample"]) == (64.0, 192, 64.0)


@pytest.mark.parametrize(
    "paradigm, events, name, band",
    [
        ("p300", ("Target", "NonTarget"), "P300", (1.0, 24.0)),
        ("ssvep", ("13", "15"), "SSVEP", (7.0, 45.0)),
        ("cvep", ("1.0", "0.0"), "CVEP", (1.0, 45.0)),
    ],
)
def test_each_kind_has_its_own_paradigm(paradigm, events, name, band):
    trials = read_moabb(fake(paradigm, events), 1)
    assert trials.steps[0] == {"step": "moabb paradigm", "paradigm": name, "fmin": band[0], "fmax": band[1]}
    assert set(trials.labels.tolist()) == set(events)


def test_resting_state_has_its_own_window_and_rate():
    dataset = fake("rstate", ("open", "closed"), n_events=2, duration=240)
    trials = read_moabb(dataset, 1)
    assert trials.steps[0]["paradigm"] == "RestingStateToP300Adapter"
    assert (trials.sfreq, trials.tmin, trials.shape[2]) == (128.0, 10.0, 40 * 128)


def test_every_paradigm_of_moabbs_data_sets_is_known():
    from moabb.datasets.utils import dataset_list

    from gbwatt.data.formats.moabb import _PARADIGMS

    kinds = {cls().paradigm for cls in dataset_list}
    assert kinds
    assert kinds <= set(_PARADIGMS)


def test_unknown_names_get_a_suggestion():
    with pytest.raises(ParameterError, match=r"'BNCI2014001' .*Did you mean 'BNCI2014_001'"):
        read_moabb("BNCI2014001", 1)


def test_unknown_subjects_are_named():
    with pytest.raises(ParameterError, match=r"subject=4 is not in FakeDataset; it has 1"):
        read_moabb(fake(), 4)
    with pytest.raises(ParameterError, match="subject=10 is not in BNCI2014_001"):
        read_moabb("BNCI2014_001", 10)


def test_unknown_paradigms_are_named():
    dataset = fake()
    dataset.paradigm = "telepathy"
    with pytest.raises(ParameterError, match=r"'telepathy'; .*imagery, p300"):
        read_moabb(dataset, 1)


def test_failed_download_says_what_to_look_at(monkeypatch):
    from moabb.datasets import BNCI2014_001

    def fail(*_, **__):
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(BNCI2014_001, "get_data", fail)
    with pytest.raises(MissingFileError, match=r"subject 1 of BNCI2014_001 .ConnectionError: Name or .* connection"):
        read_moabb("BNCI2014_001", 1)

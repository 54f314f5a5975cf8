"""What is in trials, to read or as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.data.test_trials import TRUTH, make


def test_description_has_the_numbers_of_the_trials():
    x = 5 * np.random.default_rng(1).standard_normal((40, 3, 50))
    x[:, 1] = 0.1
    found = make(n=40, X=x, tmin=-0.1, dataset="mine", subject=[1, 2] * 20).describe()
    assert (found.dataset, found.subjects, found.n_trials) == ("mine", (1, 2), 40)
    assert (found.n_chans, found.n_times, found.seconds) == (3, 50, 0.5)
    assert (found.tmin, found.tmax) == pytest.approx((-0.1, 0.4))
    assert found.flat == ("Cz",)
    assert found.amplitude == pytest.approx(5, rel=0.1)
    assert found.condition_largest == np.inf  # of the flat channel
    assert found.counts["T"] == {"left": 7, "right": 7, "feet": 6}


def test_condition_numbers_are_those_of_the_covariances():
    trials = make()
    numbers = [np.linalg.cond(np.cov(x.astype(float))) for x in trials.X]
    found = trials.describe()
    assert found.condition_median == pytest.approx(np.median(numbers))
    assert found.condition_largest == pytest.approx(max(numbers))


def test_description_is_plain_json():
    steps = ({"step": "band-pass", "low": 4.0, "high": 38.0}, {"step": "pick", "channels": ("C3", "Cz")})
    found = make(X=np.ones((8, 3, 20)), steps=steps, truths={1: TRUTH}).describe().to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["condition_largest"] == "inf"
    assert found["steps"] == ["band-pass low=4 high=38", "pick C3, Cz"]
    assert found["truth"] == ["difficulty=0.5 seed=3", "left: desynchronisation at C4, 8 to 12 Hz, 0.5 to 2 s"]


def test_description_reads_as_a_table():
    text = str(make(dataset="mine", steps=({"step": "noise", "variance": 0.2},), truths={1: TRUTH}).describe())
    lines = text.splitlines()
    assert lines[0].split() == ["data", "set", "mine"]
    assert "steps      add white noise of variance 0.2 (seed 0)" in lines
    assert any("desynchronisation at C4" in line for line in lines)
    assert [line.split() for line in lines[-3:]] == [
        ["session", "left", "right", "feet"],
        ["T", "2", "1", "1"],
        ["E", "1", "2", "1"],
    ]


def test_nothing_can_be_described():
    found = make()[[]].describe()
    assert (found.n_trials, found.amplitude, found.condition_median, found.flat) == (0, None, None, ())
    assert "trials    0" in str(found)
    assert json.dumps(found.to_dict())


def test_one_channel_and_one_sample_can_be_described():
    trials = make(n=2, X=np.ones((2, 1, 1)), ch_names=["Cz"])
    assert trials.describe().flat == ("Cz",)

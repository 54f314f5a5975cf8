"""What users give is checked, and what is wrong is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gbwatt.decoding.inputs import encode_labels, split
from gbwatt.errors import InputError, NotFiniteError, ShapeError
from tests.decoding.tiny import make_trials


def test_a_fraction_is_drawn_from_each_class_by_the_seed():
    x, y = make_trials(n=60, n_classes=3)
    classes, codes = encode_labels(y, 60)
    sets = split(x, codes, classes, 0.2, seed=1)
    assert sets.valid.y.bincount().tolist() == [4, 4, 4]
    assert len(sets.train) == 48
    assert not torch.equal(sets.valid.x, split(x, codes, classes, 0.2, seed=2).valid.x)


def test_bad_trials_are_named(decoder, trials):
    x, y = trials
    broken = x.copy()
    broken[7, 2, 5] = np.nan
    with pytest.raises(NotFiniteError, match="trial 7, channel 2"):
        decoder().fit(broken, y)
    with pytest.raises(NotFiniteError, match="trial 7, channel 2"):
        decoder().fit(x, y).predict(broken)
    broken[7, 2, 5] = 1e300  # infinite in float32
    with pytest.raises(NotFiniteError, match="trial 7, channel 2"):
        decoder().fit(broken, y)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda x, y: (x[0], y), r"\(4, 32\) does not hold epochs"),
        (lambda x, y: (x[:0], y[:0]), r"\(0, 4, 32\) has no trials; at least one"),
        (lambda x, y: (x, y[:-1]), r"'y' \(39,\) does not match 40"),
        (lambda x, y: (x, None), r"'y' None does not match 40"),
        (lambda x, y: (x, np.zeros(40)), "one class only"),
        (lambda x, y: (x, np.linspace(0, 1, 40)), "not a whole number"),
        (lambda x, y: (x.astype(str), y), "real numbers"),
        (lambda x, y: (x + 1j, y), "real numbers"),
    ],
)
def test_wrong_data_are_refused(decoder, trials, change, message):
    with pytest.raises(ValueError, match=message):
        decoder().fit(*change(*trials))


def test_prediction_needs_the_channels_and_samples_of_the_fit(decoder, trials):
    fitted = decoder().fit(*trials)
    with pytest.raises(ShapeError, match=r"\(40, 3, 32\).*\(n, 4, 32\)"):
        fitted.predict(trials[0][:, :3])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model": "tini"}, "Did you mean 'tiny'"),
        ({"task": "mii"}, "Did you mean 'mi'"),
        ({"lr": -1}, "lr=-1"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"batch_size": 1}, "batch_size=1"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"max_epochs": 0}, "max_epochs=0"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": None}, "seed=None"),
        ({"early_stopping": 0}, "early_stopping=0"),
        ({"early_stopping": 3, "validation": None}, "early_stopping=3 needs validation"),
        ({"validation": 1.5}, "between 0 and 1"),
        ({"validation": 0.001}, "leaves a class out"),
        ({"validation": [0, 0]}, "different indices"),
        ({"validation": [40]}, "different indices from 0 to 39"),
        ({"validation": "all"}, "different indices"),
        ({"validation": list(range(0, 40, 2))}, "no training trial of class 'left'"),
        ({"validation": (1, 2, 3)}, "tuple of 3"),
        ({"validation": (np.zeros((1, 3, 32)), ["left"])}, r"\(1, 3, 32\) does not match"),
        ({"validation": (np.zeros((1, 4, 32)), ["hand"])}, "'hand'"),
        ({"class_weight": "ballanced"}, "Did you mean 'balanced'"),
        ({"class_weight": {"hand": 1.0}}, "'hand'"),
        ({"class_weight": {"left": -1.0}}, "positive weights"),
    ],
)
def test_wrong_arguments_are_refused(decoder, trials, changes, message):
    with pytest.raises(InputError, match=message):
        decoder(**changes).fit(*trials)

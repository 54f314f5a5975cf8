"""Classical pipelines as models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.signal import butter, sosfreqz
from sklearn.covariance import oas
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from gbwatt.data import load
from gbwatt.decoding import EEGDecoder, evaluate, train_and_evaluate
from gbwatt.errors import ParameterError
from gbwatt.models import create, entry, list_models
from gbwatt.models.classical import FilterBank, oas_covariances

NAMES = [name for name in list_models() if entry(name).classical]


def recordings(n: int = 60, n_classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mixed sources of white noise, one with more power in each class, and a slow potential in the last class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    sources = rng.standard_normal((n, 6, 200))
    for label in range(n_classes):
        sources[y == label, label] *= 2
    sources[y == n_classes - 1, 5] += 2 * np.sin(np.linspace(0, np.pi, 200))
    return np.random.default_rng(1).standard_normal((6, 6)) @ sources, y


def test_all_pipelines_are_registered():
    assert set(NAMES) == {"tangent-space", "fb-tangent-space", "mdm", "csp", "fbcsp", "xdawn"}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_decodes_what_it_was_not_fitted_to(name, n_classes):
    x, y = recordings(90, n_classes)
    decoder = EEGDecoder(name, sfreq=100).fit(x[:60], y[:60])
    assert decoder.score(x[60:], y[60:]) > 0.8
    assert decoder.history_ == []
    assert decoder.best_epoch_ == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_pipeline_predicts_the_same(name, tmp_path):
    x, y = recordings()
    decoder = EEGDecoder(name, sfreq=100).fit(x, np.where(y, "feet", "hand"))
    decoder.save_pretrained(tmp_path)
    loaded = EEGDecoder.from_pretrained(tmp_path)
    assert np.array_equal(loaded.predict_proba(x), decoder.predict_proba(x))
    assert list(loaded.classes_) == ["feet", "hand"]


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_uses_validation_trials_too_and_no_training_parameters(name):
    x, y = recordings()
    whole = EEGDecoder(name, sfreq=100, validation=None).fit(x, y)
    split = EEGDecoder(name, sfreq=100, validation=np.arange(40, 60), lr=1.0, max_epochs=7, seed=3).fit(x, y)
    assert np.allclose(whole.predict_proba(x), split.predict_proba(x), atol=1e-3)  # the unit is of other trials


def test_covariances_are_those_of_scikit_learn():
    x = torch.randn(3, 4, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for signals, covariance in zip(x, oas_covariances(x), strict=True):
        assert np.allclose(covariance, oas(signals.numpy().T)[0], atol=1e-13)


def test_filters_have_the_response_of_a_butterworth_filter_in_both_directions():
    bank = FilterBank([(8.0, 12.0), (12.0, 30.0)], 100.0, 201)
    times = torch.arange(201, dtype=torch.float64) / 100
    for frequency in (5.0, 10.0, 20.0, 40.0):
        tone = torch.sin(2 * torch.pi * frequency * times)[None, None]
        filtered = bank.double()(tone)[0, :, 0, 50:150]
        for band, amplitude in zip(((8, 12), (12, 30)), filtered.abs().amax(-1), strict=True):
            sos = butter(4, band, "bandpass", fs=100, output="sos")
            gain = abs(sosfreqz(sos, [frequency], fs=100)[1][0]) ** 2
            assert amplitude == pytest.approx(gain, abs=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bands": [(8, 60)]}, "8 to 60 Hz must lie between 0 and half the sampling rate, 50 Hz"),
        ({"bands": [(12, 8)]}, "12 to 8 Hz"),
        ({"band": [(8, 12)]}, "band"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ParameterError, match=message):
        create("fbcsp", n_chans=4, n_outputs=2, n_times=100, sfreq=100, **options)


def test_a_filter_bank_needs_the_sampling_rate():
    with pytest.raises(ParameterError, match="pass sfreq"):
        create("fbcsp", n_chans=4, n_outputs=2, n_times=100)


@pytest.mark.parametrize("name", ["csp", "mdm"])
def test_every_class_needs_trials(name):
    model = create(name, n_chans=4, n_outputs=3, n_times=50)
    with pytest.raises(ParameterError, match="all 3 classes need training trials"):
        model.fit(torch.randn(6, 4, 50), torch.arange(6) % 2)


def test_a_pipeline_is_trained_and_evaluated_like_a_network(tmp_path):
    result = train_and_evaluate("simulated-ern", "xdawn", subject=2, folder=tmp_path / "model")
    assert result.record.epochs == 0
    again = evaluate(tmp_path / "model")
    assert again.accuracy == result.evaluation.accuracy


@pytest.mark.peers
def test_pipelines_are_those_of_pyriemann():
    from pyriemann.classification import MDM
    from pyriemann.estimation import Covariances, XdawnCovariances
    from pyriemann.tangentspace import TangentSpace

    trials = load("simulated-mi", subject=1)
    train, test = trials[:100], trials[100:150]
    theirs = {
        "tangent-space": make_pipeline(Covariances("oas"), TangentSpace(), LogisticRegression(max_iter=2000)),
        "mdm": make_pipeline(Covariances("oas"), MDM()),
    }
    for name, pipeline in theirs.items():
        expected = pipeline.fit(train.X.astype(float), train.y).predict_proba(test.X.astype(float))
        ours = EEGDecoder(name, validation=None).fit(train).predict_proba(test)
        assert np.abs(ours - expected).max() < 1e-3
    trials = load("simulated-ern", subject=2)
    train, test = trials[:200], trials[200:]
    pipeline = make_pipeline(XdawnCovariances(4, "oas"), TangentSpace(), LogisticRegression(max_iter=2000))
    expected = pipeline.fit(train.X.astype(float), train.y).predict_proba(test.X.astype(float))
    ours = EEGDecoder("xdawn", validation=None).fit(train).predict_proba(test)
    assert np.corrcoef(ours[:, 1], expected[:, 1])[0, 1] > 0.95  # the covariance of all epochs is estimated otherwise

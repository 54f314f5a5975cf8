"""Classical pipelines as models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import butter, sosfreqz
from sklearn.covariance import oas
from sklearn.cross_decomposition import CCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from gbwatt.data import load
from gbwatt.data.sets import mamem
from gbwatt.decoding import EEGDecoder, evaluate, train_and_evaluate
from gbwatt.errors import ParameterError
from gbwatt.experiments.config import experiment_from_dict
from gbwatt.experiments.execution import attempt
from gbwatt.geometry import AffineInvariant, invsqrtm
from gbwatt.models import create, entry, list_models
from gbwatt.models.classical import SSVEP_FREQUENCIES, FilterBank, class_frequencies, oas_covariances, tangent_vectors

NAMES = [name for name in list_models() if entry(name).classical]
FREQUENCIES = (9.0, 11.0, 14.0)  # of the oscillations of the classes, in Hz


def make(name: str, n_classes: int = 2, **arguments: Any) -> EEGDecoder:
    options = {"frequencies": FREQUENCIES[:n_classes]} if name == "cca" else {}
    return EEGDecoder(name, sfreq=100, model_options=options, **arguments)


def recordings(n: int = 60, n_classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mixed sources of white noise; each class has more power in one, and its own oscillation and slow potential."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    sources = rng.standard_normal((n, 6, 200))
    for label in range(n_classes):
        sources[y == label, label] *= 2
        sources[y == label, 4] += np.sin(2 * np.pi * FREQUENCIES[label] * np.arange(200) / 100)
        sources[y == label, 5] += 2 * np.sin(np.linspace(0, (label + 1) * np.pi, 200))
    return np.random.default_rng(1).standard_normal((6, 6)) @ sources, y


def test_all_pipelines_are_registered():
    assert set(NAMES) == {"tangent-space", "fb-tangent-space", "mdm", "csp", "fbcsp", "xdawn", "lda", "cca"}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_decodes_what_it_was_not_fitted_to(name, n_classes):
    x, y = recordings(90, n_classes)
    decoder = make(name, n_classes).fit(x[:60], y[:60])
    assert decoder.score(x[60:], y[60:]) > 0.8
    assert decoder.history_ == []
    assert decoder.best_epoch_ == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_pipeline_predicts_the_same(name, tmp_path):
    x, y = recordings()
    decoder = make(name).fit(x, np.where(y, "feet", "hand"))
    decoder.save_pretrained(tmp_path)
    loaded = EEGDecoder.from_pretrained(tmp_path)
    assert np.array_equal(loaded.predict_proba(x), decoder.predict_proba(x))
    assert list(loaded.classes_) == ["feet", "hand"]


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_uses_validation_trials_too_and_no_training_parameters(name):
    x, y = recordings()
    whole = make(name, validation=None).fit(x, y)
    split = make(name, validation=np.arange(40, 60), lr=1.0, max_epochs=7, seed=3).fit(x, y)
    assert np.allclose(whole.predict_proba(x), split.predict_proba(x), atol=1e-3)  # the unit is of other trials


def test_covariances_are_those_of_scikit_learn():
    x = torch.randn(3, 4, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for signals, covariance in zip(x, oas_covariances(x), strict=True):
        assert np.allclose(covariance, oas(signals.numpy().T)[0], atol=1e-13)


def test_tangent_vectors_have_the_length_of_the_distance_to_the_mean():
    covariances = oas_covariances(torch.from_numpy(recordings(20)[0]))
    mean = AffineInvariant().mean(covariances)
    lengths = tangent_vectors(covariances, invsqrtm(mean)).norm(dim=1)
    assert torch.allclose(lengths, AffineInvariant().dist(covariances, mean), rtol=1e-6)


def test_bins_are_means_of_consecutive_samples():
    model = create("lda", n_chans=2, n_outputs=2, n_times=7, sfreq=60)
    assert model.embed(torch.arange(14.0).reshape(1, 2, 7)).tolist() == [[1, 4, 8, 11]]
    assert create("lda", n_chans=2, n_outputs=2, n_times=7, sfreq=600).embed(torch.ones(1, 2, 7)).tolist() == [[1, 1]]


def cca(frequencies: Any, n_chans: int, n_times: int = 200, **options: Any) -> Any:
    arguments = {"n_outputs": len(frequencies), "n_times": n_times, "sfreq": 100, "frequencies": frequencies}
    return create("cca", n_chans=n_chans, **arguments, **options)


def test_correlation_is_that_of_scikit_learn():
    x, _ = recordings(3)
    ours = cca(FREQUENCIES[:2], 6, n_harmonics=1).correlations(torch.from_numpy(x))
    phases = 2 * np.pi * FREQUENCIES[0] * np.arange(200) / 100
    reference = np.stack([np.sin(phases), np.cos(phases)], axis=1)
    for trial, value in zip(x, ours[:, 0], strict=True):
        a, b = CCA(n_components=1, max_iter=5000, tol=1e-9).fit_transform(trial.T, reference)
        assert float(value) == pytest.approx(abs(np.corrcoef(a[:, 0], b[:, 0])[0, 1]), abs=1e-4)


def test_harmonics_help_a_wave_that_has_them():
    wave = np.sin(2 * np.pi * 20 * np.arange(125) / 100)
    x = torch.from_numpy(wave + 0.1 * np.random.default_rng(0).standard_normal((1, 2, 125)))
    one, two = (cca((10.0, 13.0), 2, 125, n_harmonics=n).correlations(x)[0, 0] for n in (1, 2))
    assert one < 0.5 < 0.95 < two


def test_harmonics_above_half_the_sampling_rate_are_left_out():
    x = torch.from_numpy(recordings(4)[0])
    two, many = (cca((20.0, 24.0), 6, n_harmonics=n).correlations(x) for n in (2, 9))
    assert torch.allclose(two, many)


def test_channels_that_depend_on_others_do_not_change_the_correlation():
    x, _ = recordings(4)
    repeated = np.concatenate([x, x[:, :2], x[:, :1] - x[:, 1:2], 0 * x[:, :1]], axis=1)
    few, many = (cca(FREQUENCIES, one.shape[1]).correlations(torch.from_numpy(one)) for one in (x, repeated))
    assert torch.allclose(few, many, atol=1e-6)


def test_probabilities_of_canonical_correlation_are_calibrated():
    x, y = recordings(300, 3)
    decoder = make("cca", 3).fit(x[:150], y[:150])
    confidence = decoder.predict_proba(x[150:]).max(axis=1)
    assert confidence.mean() == pytest.approx(decoder.score(x[150:], y[150:]), abs=0.05)


def test_frequencies_of_the_task_are_those_of_its_classes():
    assert class_frequencies(mamem.CLASS_NAMES) == SSVEP_FREQUENCIES
    assert create("cca", task="ssvep").config["frequencies"] == SSVEP_FREQUENCIES
    assert create("cca", task="ssvep", frequencies=[6, 7, 8, 9, 10]).config["frequencies"] == [6, 7, 8, 9, 10]


def test_canonical_correlation_needs_frequencies():
    x, y = recordings()
    with pytest.raises(ParameterError, match="pass the model option frequencies"):
        EEGDecoder("cca", sfreq=100).fit(x, y)
    with pytest.raises(ParameterError, match="one frequency for each of 2 classes"):
        EEGDecoder("cca", sfreq=100, model_options={"frequencies": [12]}).fit(x, y)
    with pytest.raises(ParameterError, match="60 Hz must lie between 0 and half the sampling rate, 50 Hz"):
        EEGDecoder("cca", sfreq=100, model_options={"frequencies": [12, 60]}).fit(x, y)
    with pytest.raises(ParameterError, match="not named by frequencies"):
        class_frequencies(["left", "right"])


def test_canonical_correlation_is_a_line_of_an_experiment():
    content = {
        "name": "flicker",
        "title": "Flicker",
        "datasets": ["simulated-ssvep"],
        "subjects": [1],
        "seeds": 1,
        "models": [{"label": "CCA", "model": "cca"}],
    }
    ((label, _, run),) = experiment_from_dict(content).labelled_runs()
    (row,) = attempt([run])
    assert (label, row.status) == ("CCA", "done")
    assert row.accuracy == 0.8


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


@pytest.mark.parametrize(("name", "options"), [("fbcsp", {}), ("lda", {}), ("cca", {"frequencies": [8, 12]})])
def test_a_model_of_frequencies_or_durations_needs_the_sampling_rate(name, options):
    with pytest.raises(ParameterError, match="pass sfreq"):
        create(name, n_chans=4, n_outputs=2, n_times=100, **options)


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


def test_a_filter_bank_names_its_lowest_band_if_the_sampling_rate_is_too_low():
    with pytest.raises(
        ParameterError, match=r"sfreq=10 is too low for the lowest band of the filter bank, \(4.0, 8.0\)"
    ):
        create("fb-tangent-space", n_chans=2, n_outputs=2, n_times=20, sfreq=10)

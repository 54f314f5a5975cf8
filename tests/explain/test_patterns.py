from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gbwatt.errors import MismatchError, ParameterError
from gbwatt.explain import feature_patterns, spatial_patterns, temporal_spectra
from gbwatt.explain.internals import _normalised_kernel
from gbwatt.models import GBWAtt, GDLNet
from gbwatt.nn.features import SpatioTemporalFeatures

N_CHANS, N_TIMES, SFREQ, RHYTHM = 8, 200, 100.0, 10.0


@pytest.fixture(scope="module")
def recording():
    """Epochs of a rhythm with a known topography beneath strong sources, and the filter that finds it best."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((N_CHANS, 4))
    mixing[:, 1:] += 1.5 * mixing[:, :1]  # what disturbs looks much like the source: weights must suppress it
    time = np.arange(N_TIMES) / SFREQ
    phase = rng.uniform(0, 2 * np.pi, (100, 1))
    sources = 3 * rng.standard_normal((100, 4, N_TIMES))
    sources[:, 0] = 4 * np.sin(2 * np.pi * RHYTHM * time + phase)
    x = np.einsum("cs,nst->nct", mixing, sources) + 0.3 * rng.standard_normal((100, N_CHANS, N_TIMES))
    covariance = np.einsum("nct,ndt->cd", x, x) / x.shape[0] / N_TIMES
    return x, mixing[:, 0], np.linalg.solve(covariance, mixing[:, 0])


def make(n_spatial, **options):
    model = GBWAtt(N_CHANS, 2, N_TIMES, n_spatial=n_spatial, n_temporal=4, k=3, kernel=41, **options).eval()
    return model.double()


def likeness(a, b):
    return abs(np.corrcoef(a, b)[0, 1])


def set_(parameter, values):
    with torch.no_grad():
        parameter.copy_(torch.as_tensor(values))


# ---- spatial filters


def test_pattern_of_a_spatial_filter_is_the_topography_of_its_source_where_weights_are_not(recording):
    x, topography, best = recording
    model = make(n_spatial=1)
    set_(model.features.spatial.weight, best[None, :, None])
    found = spatial_patterns(model, x)
    assert likeness(found.patterns[0], topography) > 0.999
    assert likeness(found.weights[0], best) > 0.999
    assert likeness(found.weights[0], topography) < 0.5


def test_patterns_of_independent_filters_are_the_columns_of_the_mixing_matrix():
    """For filters W that separate uncorrelated sources, A is the mixing matrix (Haufe et al. 2014)."""
    rng = np.random.default_rng(1)
    mixing, sources = rng.standard_normal((N_CHANS, 3)), rng.standard_normal((50, 3, N_TIMES))
    model = make(n_spatial=3)
    set_(model.features.spatial.weight, np.linalg.pinv(mixing)[:, :, None])
    found = spatial_patterns(model, mixing @ sources)
    for column, pattern in zip(mixing.T, found.patterns, strict=True):
        assert likeness(pattern, column) > 0.999


def test_patterns_of_more_filters_than_channels_invert_them(recording):
    found = spatial_patterns(make(n_spatial=12), recording[0])
    assert found.patterns.shape == found.weights.shape == (12, N_CHANS)
    np.testing.assert_allclose(found.patterns.T @ found.weights, np.eye(N_CHANS), atol=1e-6)


def test_branches_have_patterns_of_their_own(recording):
    model = make(n_spatial=2, split="grouped", n_segments=3)
    found = spatial_patterns(model, recording[0])
    assert found.patterns.shape == (6, N_CHANS)
    for branch in range(3):
        rows = slice(2 * branch, 2 * branch + 2)
        np.testing.assert_allclose(found.weights[rows] @ found.patterns[rows].T, np.eye(2), atol=1e-8)


# ---- features


def planted_model(recording, shift=0):
    """A feature that is the best filter at the rhythm, spread over spatial filters of which none is."""
    _, _, best = recording
    model = make(n_spatial=N_CHANS)
    spatial = model.features.spatial.weight.detach().numpy()[..., 0]
    time = (np.arange(41) - 20 + shift) / SFREQ
    wavelet = np.cos(2 * np.pi * RHYTHM * time) * np.hanning(41)
    weights = model.features.temporal.weight.detach().numpy().copy()
    weights[0] = np.outer(np.linalg.solve(spatial.T, best), wavelet)
    set_(model.features.temporal.weight, weights)
    return model


@pytest.mark.parametrize("shift", [0, 2.5], ids=["in phase", "a quarter of a cycle late"])
def test_pattern_of_a_feature_is_the_topography_of_its_source_where_weights_are_not(recording, shift):
    x, topography, best = recording
    found = feature_patterns(planted_model(recording, shift), x)
    assert found.patterns.shape == (4, N_CHANS)
    assert likeness(found.patterns[0], topography) > 0.999
    assert likeness(found.weights[0], best) > 0.999
    assert likeness(found.weights[0], topography) < 0.5


def test_single_spatial_filters_do_not_show_what_a_feature_finds(recording):
    x, topography, _ = recording
    found = spatial_patterns(planted_model(recording), x)
    assert max(likeness(pattern, topography) for pattern in found.patterns) < 0.8


def test_pattern_has_the_amplitude_of_the_signal_in_the_recording():
    """Of a sine of amplitude one and nothing else, the pattern has the length of its topography, up to a constant."""
    time, topography = np.arange(N_TIMES) / SFREQ, np.array([3.0, 1, 0, -1, 0, 0, 0, 0])
    model = make(n_spatial=2)
    one, two = (
        feature_patterns(model, size * np.sin(2 * np.pi * RHYTHM * time)[None, None] * topography[None, :, None])
        for size in (1.0, 2.0)
    )
    np.testing.assert_allclose(two.patterns, 2 * one.patterns, atol=1e-9)
    np.testing.assert_allclose(one.patterns / one.patterns[:, :1], [topography / 3] * 4, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"branches": 3}, {"branches": 3, "shared": True}])
def test_filters_and_normalisations_are_one_kernel(options):
    layer = SpatioTemporalFeatures(5, 4, 3, kernel=7, **options).double().eval()
    for norm in (layer.spatial_norm, layer.temporal_norm):
        for tensor in (norm.weight, norm.running_var):
            nn.init.uniform_(tensor, 0.5, 2)
        nn.init.normal_(norm.running_mean)
    x = torch.randn(2, 5, 40, dtype=torch.float64)
    with torch.no_grad():
        linear = (layer(x) - layer(0 * x)).flatten(1, 2)  # offsets cancel
    wanted = nn.functional.conv1d(x, torch.from_numpy(_normalised_kernel(layer)), padding=3)
    torch.testing.assert_close(linear, wanted)


def test_a_kernel_longer_than_the_epochs_has_patterns_too(recording):
    model = GBWAtt(N_CHANS, 2, 30, n_spatial=3, n_temporal=4, k=3, kernel=41)
    assert np.isfinite(feature_patterns(model, recording[0][..., :30]).patterns).all()


def test_weights_are_per_unit_of_the_recording(decoder, trials):
    own, bare = feature_patterns(decoder, trials), feature_patterns(decoder.net_.module_, trials)
    np.testing.assert_allclose(own.weights, decoder.scale_ * bare.weights)
    np.testing.assert_allclose(own.patterns, bare.patterns)
    assert own.ch_names == trials.ch_names


# ---- temporal filters


def test_spectrum_of_a_temporal_filter_has_its_peak_at_the_rhythm(recording):
    found = temporal_spectra(planted_model(recording), SFREQ)
    assert found.amplitudes.shape == (4, len(found.frequencies))
    assert abs(found.frequencies[found.amplitudes[0].argmax()] - RHYTHM) < 0.5
    assert found.frequencies[-1] == SFREQ / 2


def test_spectrum_keeps_the_energy_of_the_filters():
    model = make(n_spatial=5)
    found = temporal_spectra(model, SFREQ)
    both_sides = np.concatenate([found.amplitudes, found.amplitudes[:, 1:-1]], axis=1)  # Parseval
    energy = model.features.temporal.weight.detach().numpy() ** 2
    np.testing.assert_allclose((both_sides**2).mean(axis=1), energy.sum(axis=(1, 2)))


def test_a_decoder_knows_the_sampling_rate_and_no_other_is_taken(decoder):
    found = temporal_spectra(decoder)
    assert found.frequencies[-1] == 32.0
    np.testing.assert_array_equal(temporal_spectra(decoder, 64).frequencies, found.frequencies)
    with pytest.raises(MismatchError, match="sfreq=500, but 'model' was trained at 64 Hz"):
        temporal_spectra(decoder, 500)


def test_a_network_does_not_know_the_sampling_rate():
    with pytest.raises(ParameterError, match="sfreq=None, but 'model' does not know its sampling rate"):
        temporal_spectra(make(n_spatial=2))


def test_patterns_and_spectra_are_shown_in_a_line(decoder, trials):
    for found in (feature_patterns(decoder, trials), temporal_spectra(decoder)):
        assert "\n" not in repr(found)
        assert len(repr(found)) < 300


# ---- errors


@pytest.mark.parametrize("ask", [spatial_patterns, feature_patterns, temporal_spectra])
def test_a_network_without_filters_is_refused(ask, recording):
    model = GBWAtt(N_CHANS, 2, N_TIMES, features=False, split="time")
    with pytest.raises(ParameterError, match="without linear spatial and temporal filters"):
        ask(model, SFREQ if ask is temporal_spectra else recording[0])


def test_filters_with_activations_between_them_are_refused(recording):
    """The patterns are of linear filters, which those of GDLNet are not, unless it is the linear variant."""
    signal = {"n_chans": N_CHANS, "n_outputs": 2, "n_times": N_TIMES}
    with pytest.raises(ParameterError, match="GDLNet without linear"):
        feature_patterns(GDLNet(**signal).eval(), recording[0])
    assert feature_patterns(GDLNet(**signal, variant="linear").eval(), recording[0]).patterns.shape[1] == N_CHANS


def test_a_sampling_rate_must_be_positive():
    with pytest.raises(ParameterError, match="sfreq=0"):
        temporal_spectra(make(n_spatial=2), 0)

"""Initial weights from training data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from gbwatt import GBWAtt, GBWAttClassifier
from gbwatt.decoding import EEGDecoder
from gbwatt.decoding.initialization import filter_bank, initialize_classically, whitening
from gbwatt.decoding.training import best_epoch, best_row
from gbwatt.errors import ParameterError
from gbwatt.geometry import logm, vech
from tests.geometry.conftest import assert_close


def epochs(n: int = 40, n_chans: int = 4, n_times: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Mixed channels; the classes differ in the power of a source."""
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randn(n, n_chans, n_times, generator=generator, dtype=torch.float64)
    y = torch.arange(n) % 2
    sources[y == 1, 0] *= 1.7
    return torch.randn(n_chans, n_chans, generator=generator, dtype=torch.float64) @ sources, y


def network(**options) -> GBWAtt:
    torch.manual_seed(0)
    sizes = {"n_spatial": 4, "n_temporal": 4, "k": 4, "kernel": 9, "n_segments": 1, "shrinkage": 0.1}
    return GBWAtt(4, 2, 60, **{**sizes, **options}).double()


def test_whitening_makes_channels_uncorrelated_with_unit_variance():
    x, _ = epochs()
    centred = x - x.mean(-1, keepdim=True)
    for n_filters in (2, 4):
        white = whitening(x, n_filters) @ centred
        covariance = torch.einsum("bct,bdt->cd", white, white) / (len(x) * 60)
        assert_close(covariance, torch.eye(n_filters, dtype=torch.float64), 1e-10)
    more = whitening(x, 6)
    assert_close(more[:4], whitening(x, 4), 1e-12)
    assert_close(more[:4], more[:4].mT, 1e-10)
    assert not more[4:].any()


def test_whitening_of_a_flat_channel_is_finite():
    x, _ = epochs()
    x[:, 2] = 0
    assert torch.isfinite(whitening(x, 4)).all()


def test_a_filter_bank_divides_the_amplitude_equally_and_adds_up_to_the_identity():
    """White noise has bands of equal width; the sum of all bands passes the signal on."""
    noise = torch.randn(50, 2, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for length in (81, 80):
        bank = filter_bank(noise, 4, length)
        total = bank.sum(0)
        assert total[length // 2] == pytest.approx(1)
        assert total.abs().sum() == pytest.approx(1, abs=1e-9)
        response = torch.fft.rfft(bank, 800).abs()
        for band in range(4):
            centre = 50 + 100 * band  # of 400 frequencies up to half the sampling rate
            assert response[band, centre] == pytest.approx(1, abs=0.02)
            others = [other for other in range(4) if other != band]
            assert response[others, centre].max() < 0.02
    assert torch.equal(filter_bank(noise, 1, 5)[0], torch.tensor([0.0, 0, 1, 0, 0], dtype=torch.float64))


def test_more_temporal_than_spatial_filters_start_as_a_filter_bank_of_equal_power():
    x, y = epochs()
    model = network(n_temporal=9, k=9, kernel=15)
    initialize_classically(model, x, y)
    power = model.features(x).var(3).mean((0, 1))
    assert_close(power[:8], torch.ones(8, dtype=torch.float64), 1e-6)
    assert not model.features.temporal.weight[8].any()  # two bands of four components


def test_the_untrained_network_is_tangent_space_and_logistic_regression():
    """Logarithms of trace-one, shrunk covariances of whitened channels, classified by scikit-learn."""
    x, y = epochs()
    model = network()
    initialize_classically(model, x, y)
    white = whitening(x, 4) @ x
    centred = white - white.mean(-1, keepdim=True)
    covariances = centred @ centred.mT
    covariances = covariances / covariances.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
    covariances = 0.9 * covariances + (0.1 / 4 + 1e-5) * torch.eye(4, dtype=torch.float64)
    vectors = vech(logm(covariances))
    scale = model.embed(x) / vectors  # the embedding may weight entries
    assert_close(scale, scale[:1].expand_as(scale), 1e-6)
    embedded = model.embed(x).detach().numpy()
    probabilities = model(x).softmax(-1).detach().numpy()
    losses = []
    for strength in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
        regression = LogisticRegression(C=strength, max_iter=2000, tol=1e-10).fit(embedded, y.numpy())
        losses.append(np.abs(regression.predict_proba(embedded) - probabilities).max())
    assert min(losses) < 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {"n_spatial": 6, "n_temporal": 5, "k": 3},
        {"n_spatial": 3, "n_temporal": 2, "k": 2},
        {"split": "grouped", "n_segments": 3},
        {"split": "shared", "n_segments": 2},
        {"n_segments": 3, "residual": "learnt", "embed_mean": True, "n_templates": 2, "k": 7},
        {"metric": "log-euclidean"},
        {"kernel": 8},
    ],
)
def test_all_sizes_and_options_can_be_initialised(options):
    x, y = epochs()
    model = network(**options)
    initialize_classically(model, x, y)
    accuracy = (model(x).argmax(-1) == y).double().mean()
    assert accuracy > 0.65
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_templates_are_the_components_of_class_means():
    x, y = epochs()
    wave = torch.sin(torch.linspace(0, 9, 60, dtype=torch.float64))
    x[y == 1, 1] += 40 * wave
    model = network(n_templates=1, embed_mean=True, k=6)
    initialize_classically(model, x, y)
    template = model.templates.weight[0].detach()
    assert abs(np.corrcoef(template.numpy(), wave.numpy())[0, 1]) > 0.98
    assert template.std() == pytest.approx(1)


def test_statistics_stay_frozen_while_the_filters_are_trained():
    x, y = epochs()
    model = network()
    initialize_classically(model, x, y)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    assert not model.features.spatial_norm.training
    torch.nn.functional.cross_entropy(model(x), y).backward()
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert model.features.spatial.weight.grad.abs().sum() > 0
    assert model.features.temporal.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("options", [{"attention": "none"}, {"attention": "euclidean"}, {"features": False}])
def test_networks_without_filters_or_spd_attention_are_refused(options):
    x, y = epochs()
    with pytest.raises(ParameterError, match=r"initialization='classical' needs .* initialization='random'"):
        initialize_classically(GBWAtt(4, 2, 60, **options).double(), x, y)


def test_initial_weights_are_kept_if_no_epoch_is_better():
    x, y = (a.numpy() for a in epochs())
    options = {"n_spatial": 4, "n_temporal": 4, "k": 4, "kernel": 9, "n_segments": 1}
    settings = {"validation": 0.2, "lr": 5.0, "max_epochs": 2, "model_options": options}
    fitted = GBWAttClassifier(task="mi", **settings).fit(x, y)
    assert fitted.best_epoch_ == 0
    first = fitted.history_[0]
    assert first["initial_valid_loss"] < min(row["valid_loss"] for row in fitted.history_)
    scores = {name: first[f"initial_{name}"] for name in ("valid_loss", "valid_accuracy")}
    assert best_row(fitted.history_) == {"epoch": 0, **scores}
    better = GBWAttClassifier(task="mi", **{**settings, "lr": 1e-3, "max_epochs": 5}).fit(x, y)
    losses = [better.history_[0]["initial_valid_loss"], *(row["valid_loss"] for row in better.history_)]
    assert better.best_epoch_ == best_epoch(better.history_) == losses.index(min(losses))


def test_a_classical_start_is_repeated_exactly_and_resumes_from_a_checkpoint(tmp_path):
    x, y = (a.numpy() for a in epochs())

    def decoder(**changes) -> EEGDecoder:
        return EEGDecoder(initialization="classical", lr=1e-3, model_options={"recipe": "best"}, **changes)

    whole = decoder(max_epochs=4, checkpoint=tmp_path / "whole").fit(x, y)
    decoder(max_epochs=2, checkpoint=tmp_path / "part").fit(x, y)
    resumed = decoder(max_epochs=4, checkpoint=tmp_path / "part").fit(x, y)
    assert np.array_equal(whole.predict_proba(x), resumed.predict_proba(x))
    assert [row["valid_loss"] for row in whole.history_] == [row["valid_loss"] for row in resumed.history_]


def test_an_unknown_initialisation_is_refused():
    x, y = (a.numpy() for a in epochs())
    with pytest.raises(ParameterError, match=r"initialization='clasical'.*Did you mean 'classical'"):
        EEGDecoder(initialization="clasical").fit(x, y)
    with pytest.raises(ParameterError, match="needs a network with filters"):
        EEGDecoder("spdnet", initialization="classical").fit(x, y)


def test_the_initialisation_is_saved_with_the_estimator(tmp_path):
    x, y = (a.numpy() for a in epochs())
    fitted = GBWAttClassifier(initialization="classical", max_epochs=1).fit(x, y)
    fitted.save_pretrained(tmp_path)
    loaded = GBWAttClassifier.from_pretrained(tmp_path)
    assert loaded.initialization == "classical"
    assert loaded.best_epoch_ == fitted.best_epoch_
    assert np.array_equal(loaded.predict_proba(x), fitted.predict_proba(x))

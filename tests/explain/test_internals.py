from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError
from gbwatt.explain import embed, learnt_metric, look_inside
from gbwatt.explain.internals import logits_with_other_weights
from gbwatt.models import GBWAtt, SPDNet

# ---- a forward pass


def test_features_are_what_the_last_layer_classifies(decoder, trials):
    inside, last = look_inside(decoder, trials), decoder.net_.module_.final_layer
    logits = inside.features @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, decoder.predict_proba(trials), atol=1e-4)


def test_eigenvalues_give_the_condition_numbers_of_the_details(decoder, trials):
    module = decoder.net_.module_
    with torch.no_grad():
        details = module(torch.from_numpy(trials.X * np.float32(decoder.scale_)), details=True)
    for found, wanted in zip(
        look_inside(decoder, trials).condition_numbers(), details.condition_numbers(), strict=True
    ):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-3)


def test_attention_is_averaged_over_the_trials_of_each_class(decoder, trials):
    inside = look_inside(decoder, trials, target=1)
    np.testing.assert_allclose(inside.attention.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(inside.attention_by_class()[1], inside.attention.mean(axis=0))
    assert np.isnan(inside.attention_by_class()[0]).all()


def test_looking_leaves_the_mode_as_it_was(decoder, trials):
    module = decoder.net_.module_.train()
    try:
        look_inside(decoder, trials)
        assert module.training
    finally:
        module.eval()


@pytest.mark.parametrize(
    "model",
    [GBWAtt(n_chans=6, n_outputs=2, n_times=64, attention="none"), SPDNet(n_chans=6, n_outputs=2, n_times=64)],
    ids=["no attention", "SPDNet"],
)
@pytest.mark.parametrize("ask", [lambda m, t: look_inside(m, t), lambda m, t: learnt_metric(m)])
def test_a_network_without_attention_of_matrices_is_refused(ask, model, trials):
    with pytest.raises(ParameterError, match="without attention of SPD matrices"):
        ask(model, trials)


# ---- the metric


def test_metric_is_measured_from_the_identity():
    model = GBWAtt(n_chans=6, n_outputs=2, n_times=64, k=3, theta=0.7)
    eigenvalues = torch.tensor([0.5, 1.0, 4.0])
    turn = torch.linalg.qr(torch.randn(3, 3))[0]
    with torch.no_grad():
        model.attention.metric.M.copy_((turn * eigenvalues) @ turn.mT)
    found = learnt_metric(model)
    np.testing.assert_allclose(found.eigenvalues, eigenvalues, rtol=1e-5)
    assert found.theta == 0.7
    assert found.distance == pytest.approx(np.sqrt((np.log([0.5, 1.0, 4.0]) ** 2).sum()), rel=1e-5)
    assert found.relative == pytest.approx(np.sqrt((0.5**2 + 3**2) / 3), rel=1e-5)
    np.testing.assert_allclose(np.linalg.eigvalsh(found.M), found.eigenvalues)


def test_training_moves_the_metric(decoder):
    assert learnt_metric(decoder).distance > 1e-3


def test_learnt_theta_is_reported():
    model = GBWAtt(n_chans=6, n_outputs=2, n_times=64, theta=-1.5, learn_theta=True)
    assert learnt_metric(model).theta == pytest.approx(-1.5)


def test_a_metric_without_parameters_is_refused():
    with pytest.raises(ParameterError, match="no M and theta"):
        learnt_metric(GBWAtt(n_chans=6, n_outputs=2, n_times=64, metric="log-euclidean"))


# ---- the plane


@pytest.fixture
def clusters():
    rng = np.random.default_rng(0)
    return np.repeat([[0.0], [20.0]], 20, axis=0) + rng.standard_normal((40, 10))


def test_pca_is_that_of_scikit_learn_up_to_signs(clusters):
    found, wanted = embed(clusters), PCA(2).fit_transform(clusters)
    np.testing.assert_allclose(abs(found), abs(wanted), atol=1e-8)


@pytest.mark.parametrize("method", ["pca", "t-sne"])
def test_clusters_stay_apart_in_the_plane_and_points_follow_the_seed(method, clusters):
    found = embed(clusters, method, seed=3)
    assert found.shape == (40, 2)
    np.testing.assert_array_equal(found, embed(clusters, method, seed=3))
    middles = found[:20].mean(axis=0), found[20:].mean(axis=0)
    assert np.linalg.norm(middles[0] - middles[1]) > 2 * max(found[:20].std(), found[20:].std())


def test_missing_umap_is_named(clusters, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match="pip install umap-learn"):
        embed(clusters, "umap")


def test_umap_is_used_where_it_is_installed(clusters, monkeypatch):
    asked = {}

    class UMAP:
        def __init__(self, **options):
            asked.update(options)

        def fit_transform(self, x):
            return x[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=UMAP))
    np.testing.assert_array_equal(embed(clusters, "umap", seed=5), clusters[:, :2])
    assert asked["random_state"] == 5
    assert 2 <= asked["n_neighbors"] < 40


def test_what_has_no_plane_is_refused(clusters):
    with pytest.raises(ShapeError, match="'features'"):
        embed(clusters[:, 0])
    with pytest.raises(ParameterError, match="Did you mean 't-sne'"):
        embed(clusters, "tsne")
    clusters[7, 3] = np.nan
    with pytest.raises(NotFiniteError, match="1 rows, first in row 7"):
        embed(clusters)
    with pytest.raises(MismatchError, match="not an array of real numbers"):
        embed([["a", "b"]] * 3)


def test_what_was_seen_inside_is_no_features_but_has_them(decoder, trials):
    inside = look_inside(decoder, trials)
    with pytest.raises(MismatchError, match=r"embed\(internals.features\)"):
        embed(inside)
    assert embed(inside.features).shape == (60, 2)


def test_what_was_seen_inside_is_shown_in_a_line(decoder, trials):
    for found in (look_inside(decoder, trials), learnt_metric(decoder)):
        assert "\n" not in repr(found)
        assert len(repr(found)) < 300


def test_logits_with_other_weights_are_those_of_networks_with_such_weights():
    """A temperature of infinity gives uniform weights, a residual of one each window alone."""
    x = np.random.default_rng(0).standard_normal((5, 4, 60))
    torch.manual_seed(0)
    model = GBWAtt(4, 2, 60, n_segments=3, residual=0.3).eval()
    uniform, own = logits_with_other_weights(model, x)
    for expected, options in ((uniform, {"temperature": 1e12}), (own, {"residual": 1.0})):
        other = GBWAtt(4, 2, 60, n_segments=3, **options).eval()
        other.load_state_dict(model.state_dict())
        assert np.allclose(other(torch.as_tensor(x, dtype=torch.float32)).detach().numpy(), expected, atol=1e-4)
    with pytest.raises(ParameterError, match="without attention of SPD matrices"):
        logits_with_other_weights(GBWAtt(4, 2, 60, attention="none"), x)

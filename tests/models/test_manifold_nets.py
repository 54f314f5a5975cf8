"""GDLNet: attention of subspaces, presets, shapes, gradients, options."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from sklearn.base import clone
from torch.nn import functional

from gbwatt import _io
from gbwatt.decoding import EEGDecoder
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.models import registry
from gbwatt.models.manifold_nets import ARCHITECTURES, FullRankMap, GDLNet, GrassmannSelfAttention
from gbwatt.models.presets import TASKS
from gbwatt.models.serialization import load_pretrained, save_pretrained
from gbwatt.nn import SegmentCovariance

SMALL = {"n_chans": 3, "n_outputs": 2, "n_times": 80, "sfreq": 40.0}


def build(**changes):
    torch.manual_seed(0)
    return GDLNet(**{**SMALL, **changes})


def epochs(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bases(*shape, seed=0):
    return torch.linalg.qr(epochs(*shape, seed=seed).double())[0]


# ---------------------------------------------------------------------------------------------------------- attention


@pytest.fixture
def attention():
    torch.manual_seed(0)
    return GrassmannSelfAttention(6, 5).double()


def test_attention_by_its_definition(attention):
    x = bases(2, 3, 6, 2)

    def span(layer, u):
        y = layer.weight.mT @ u
        return y @ torch.linalg.inv(y.mT @ y) @ y.mT  # the projector, without a basis

    for item, value, weights in zip(x, *attention(x), strict=True):
        q, k, v = ([span(layer, u) for u in item] for layer in (attention.query, attention.key, attention.value))
        score = torch.stack([torch.stack([1 / (1 + torch.log(1 + torch.dist(a, b))) for b in k]) for a in q])
        assert torch.allclose(weights, score.softmax(-1))
        want = torch.stack([sum(w * b for w, b in zip(row, v, strict=True)) for row in score.softmax(-1)])
        assert torch.allclose(value, want)


def test_attention_depends_on_subspaces_and_not_on_their_bases(attention, orthogonal):
    x = bases(2, 3, 6, 2)
    for got, want in zip(attention(x @ orthogonal(2, seed=1)), attention(x), strict=True):
        assert torch.allclose(got, want)


def test_attention_is_equivariant_to_the_order_of_the_sequence(attention):
    x, order = bases(2, 4, 6, 2), torch.tensor([2, 0, 3, 1])
    value, weights = attention(x)
    permuted = attention(x[:, order])
    assert torch.allclose(permuted.value, value[:, order])
    assert torch.allclose(permuted.weights, weights[:, order][..., order])


def test_what_a_query_sees_is_a_mean_of_projectors(attention):
    value, weights = attention(bases(2, 4, 6, 2))
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4).double())
    assert torch.allclose(value.diagonal(dim1=-2, dim2=-1).sum(-1), torch.full((2, 4), 2.0).double())
    eigenvalues = torch.linalg.eigvalsh(value.detach())
    assert float(eigenvalues.min()) > -1e-12
    assert float(eigenvalues.max()) < 1 + 1e-12


def test_full_rank_map_gives_orthonormal_bases():
    u = FullRankMap(6, 4).double()(bases(2, 6, 3))
    assert u.shape == (2, 4, 3)
    assert torch.allclose(u.mT @ u, torch.eye(3).double().expand(2, 3, 3))


# -------------------------------------------------------------------------------------------------------------- model


@pytest.mark.parametrize("task", TASKS)
def test_logits_for_every_task(task):
    signal, sizes = TASKS[task].signal, ARCHITECTURES[task]
    model = registry.create("gdlnet", task=task)
    assert model.attention.query.weight.shape == (sizes.n_temporal, sizes.k)
    logits = model(epochs(2, signal.n_chans, signal.n_times))
    assert logits.shape == (2, signal.n_outputs)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("task, spatial, temporal, maps", [("ssvep", 125, 21, 19), ("ern", 14, 16, 14)])
def test_presets_are_those_of_gdlnet(task, spatial, temporal, maps):
    """Three groups of temporal filters on common spatial ones."""
    model = registry.create("gdlnet", task=task)
    assert model.features.spatial.out_channels == spatial
    assert model.features.temporal.out_channels == 3 * temporal
    assert model.final_layer.in_features == 3 * maps**2


@pytest.mark.parametrize("task, parameters", [("ssvep", 512_181), ("ern", 45_828)])
def test_it_has_as_many_parameters_as_the_original(task, parameters):
    assert sum(p.numel() for p in registry.create("gdlnet", task=task).parameters()) == parameters


def by_definition(model, x):
    """The network of the authors in training: no padding, ELU after each normalisation, whole matrices at the end."""
    filters, m = model.features, model.config["n_segments"]

    def normalised(y, norm):
        return functional.elu(functional.batch_norm(y, None, None, norm.weight, norm.bias, training=True))

    y = normalised(functional.conv1d(x, filters.spatial.weight, filters.spatial.bias), filters.spatial_norm)
    y = functional.conv1d(y, filters.temporal.weight, filters.temporal.bias, groups=filters.temporal.groups)
    y = normalised(y, filters.temporal_norm)
    y = torch.stack(y.chunk(m, dim=-1 if model.config["split"] == "time" else 1), dim=1)
    y = y - y.mean(-1, keepdim=True)
    u = torch.linalg.eigh(y @ y.mT)[1][..., -model.p :]

    def projectors(layer):
        basis = torch.linalg.qr(layer.weight.mT @ u)[0]
        return basis @ basis.mT

    q, k, v = (projectors(layer) for layer in (model.attention.query, model.attention.key, model.attention.value))
    distance = torch.linalg.matrix_norm(q[:, :, None] - k[:, None])
    weights = (1 / (1 + torch.log(1 + distance))).softmax(-1)
    return model.final_layer(torch.einsum("bij,bjkl->bikl", weights, v).flatten(1))


@pytest.mark.parametrize(
    "options", [{}, {"split": "grouped"}, {"split": "time", "kernel": 9}, {"n_spatial": 64, "kernel": 30}]
)
def test_the_network_is_the_original_by_its_definition(options):
    model, x = build(**options).double(), epochs(4, 3, 80).double()
    assert torch.allclose(model(x), by_definition(model, x))


def test_a_configuration_without_a_variant_is_of_the_linear_network(tmp_path):
    """That is how models were saved before there was the option."""
    model, x = build(variant="linear").eval(), epochs(2, 3, 80)
    save_pretrained(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["arguments"].pop("variant") == "linear"
    (tmp_path / "config.json").write_text(json.dumps(_io.sealed(json.dumps(config))))
    loaded = load_pretrained(tmp_path).model
    assert torch.equal(loaded(x), model(x))
    save_pretrained(loaded, tmp_path)  # with the option, which stays what it was
    assert load_pretrained(tmp_path).arguments["variant"] == "linear"


def test_an_estimator_saved_without_a_variant_is_trained_again_as_the_linear_network(tmp_path):
    x, y = epochs(12, 3, 80).numpy(), [0, 1] * 6
    EEGDecoder("gdlnet", model_options={"variant": "linear", "p": 3}, max_epochs=1).fit(x, y).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["arguments"]["variant"], config["extra"]["estimator"]["parameters"]["model_options"]["variant"]
    (tmp_path / "config.json").write_text(json.dumps(_io.sealed(json.dumps(config))))
    loaded = EEGDecoder.from_pretrained(tmp_path)
    assert loaded.model_options == {"variant": "linear", "p": 3}
    assert clone(loaded).fit(x, y).net_.module_.config["variant"] == "linear"


@pytest.mark.parametrize("task, parameters", [("ssvep", 509_616), ("ern", 45_282)])
def test_the_linear_variant_is_the_network_of_earlier_results(task, parameters):
    model = registry.create("gdlnet", task=task, variant="linear")
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model.features.temporal.padding == (32,)


def test_options_go_before_the_preset():
    assert registry.create("gdlnet", task="ssvep", p=4, n_out=10).config["n_out"] == 10
    assert registry.create("gdlnet", task="ssvep", p=4).p == 4


def test_a_singleton_axis_is_accepted():
    model, x = build().eval(), epochs(2, 3, 80)
    assert torch.equal(model(x), model(x[:, None]))


@pytest.mark.parametrize("shape", [(2, 4, 80), (2, 3, 81), (3, 80), (2, 2, 3, 80)])
def test_epochs_of_another_shape_are_refused(shape):
    with pytest.raises(ShapeError, match=r"epochs \(batch, 3, 80\)"):
        build()(epochs(*shape))


@pytest.mark.parametrize("split", ["shared", "grouped", "time"])
@pytest.mark.parametrize("variant", ["original", "linear"])
def test_gradients_reach_every_parameter(split, variant):
    """But for offsets, which batch normalisation and, of linear filters, the centring of covariances take away."""
    model = build(split=split, variant=variant).double()
    torch.nn.functional.cross_entropy(model(epochs(8, 3, 80).double()), torch.arange(8) % 2).backward()
    silent = {key for key, p in model.named_parameters() if not float(p.grad.abs().max()) > 1e-12}
    centred = {"features.temporal_norm.bias"} if variant == "linear" else set()
    assert silent == {"features.spatial.bias", "features.temporal.bias"} | centred


def test_gradients_are_finite_for_silent_channels_and_constant_epochs():
    model = build()
    x = epochs(4, 3, 80)
    x[:, 1], x[2] = 0, 1
    model(x).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_state_dict_and_config_make_the_same_model():
    model, x = build(), epochs(4, 3, 80)
    model(x)  # moves the running statistics
    other = registry.create("gdlnet", **model.config)
    assert not torch.allclose(other.eval()(x), model.eval()(x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    assert torch.equal(copy.deepcopy(model)(x), model(x))


OPTIONS = {
    "n_spatial": 4,
    "n_temporal": 8,
    "kernel": 5,
    "split": "grouped",
    "n_segments": 2,
    "n_out": 9,
    "p": 2,
    "variant": "linear",
    "sfreq": 20.0,
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_changes_the_model(option):
    x = epochs(4, 3, 80)
    logits, changed = build()(x), build(**{option: OPTIONS[option]})(x)
    assert torch.equal(logits, build()(x))
    assert not torch.allclose(logits, changed)


def test_every_option_is_in_the_test_above():
    assert OPTIONS.keys() == build().config.keys() - {"n_chans", "n_outputs", "n_times"}


def test_regularised_covariances_have_the_same_leading_subspaces():
    """Why the model has no option for it."""
    model, x = build().double().eval(), epochs(4, 3, 80).double()
    logits = model(x)
    model.covariances = SegmentCovariance(1, eps=1e-2, shrinkage=0.5)
    assert torch.allclose(model(x), logits)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_temporal": 1}, "n_temporal=1"),
        ({"n_temporal": 8, "n_out": 9}, "n_out=9 must be between 2 and n_temporal=8"),
        ({"n_out": 1}, "n_out=1"),
        ({"n_out": 6, "p": 6}, "p=6 must be between 1 and 5"),
        ({"p": 0}, "p=0"),
        ({"split": "times"}, "Did you mean 'time'"),
        ({"variant": "orignal"}, "Did you mean 'original'"),
        ({"kernel": 80}, "kernel=80 .* n_times=80"),
        ({"n_spatial": -1}, "n_spatial=-1"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        build(**options)


def test_epochs_too_short_for_their_windows_are_refused():
    with pytest.raises(ShapeError, match="n_segments"):
        build(n_times=8, kernel=3, split="time", n_segments=6)(epochs(2, 3, 8))

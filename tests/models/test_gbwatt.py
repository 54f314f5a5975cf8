"""GBWAtt: presets, default sizes, ablations, details, and use with torch."""

from __future__ import annotations

import copy
import inspect
import math

import pytest
import torch
from torch import nn

import gbwatt.geometry._native
import gbwatt.nn._native
from gbwatt import GBWAtt
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.models.gbwatt import RECIPES
from gbwatt.models.presets import TASKS, architecture_for
from gbwatt.models.signal import Signal
from gbwatt.nn.optim import RiemannianAdam
from tests.geometry.conftest import assert_close

SMALL = {
    "n_chans": 4,
    "n_outputs": 3,
    "n_times": 40,
    "n_spatial": 6,
    "n_temporal": 5,
    "kernel": 6,
    "n_segments": 2,
    "k": 3,
}


def small(seed: int = 0, **changes) -> GBWAtt:
    torch.manual_seed(seed)
    return GBWAtt(**{**SMALL, **changes})


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@pytest.fixture
def x():
    return torch.randn(6, 4, 40, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("task", "parameters"), [("mi", 9350), ("ssvep", 72339)])
def test_presets_have_as_many_parameters_as_the_paper_says(task, parameters):
    assert count(GBWAtt.for_task(task)) == parameters


@pytest.mark.parametrize(("split", "spatial"), [("grouped", 3 * 23), ("shared", 14), ("time", 22)])
def test_ern_has_three_readings(split, spatial):
    model = GBWAtt.for_task("ern", split=split)
    assert model.features.spatial.out_channels == spatial
    details = model(torch.randn(2, 56, 160), details=True)
    assert details.covariances.shape == (2, 3, 16, 16)
    assert details.attended.shape == (2, 3, 8, 8)


@pytest.mark.parametrize("task", TASKS)
def test_forward_follows_the_table_of_the_paper(task):
    preset, model = TASKS[task], GBWAtt.for_task(task)
    signal, sizes = preset.signal, preset.architecture
    details = model(torch.randn(2, signal.n_chans, signal.n_times), details=True)
    assert details.covariances.shape == (2, sizes.n_segments, sizes.n_temporal, sizes.n_temporal)
    assert details.attention.shape == (2, sizes.n_segments, sizes.n_segments)
    assert details.attended.shape == (2, sizes.n_segments, sizes.k, sizes.k)
    assert details.logits.shape == (2, signal.n_outputs)


@pytest.mark.parametrize(
    ("n_chans", "n_times", "sfreq"),
    [
        (1, 8, None),
        (2, 30, 100.0),
        (8, 125, 125.0),
        (22, 438, None),
        (64, 640, 160.0),
        (128, 2000, 500.0),
        (3, 64, 1000.0),
    ],
)
def test_the_rule_fits_any_epochs(n_chans, n_times, sfreq):
    model = GBWAtt(n_chans, 2, n_times, sfreq=sfreq)
    assert torch.isfinite(model(torch.randn(3, n_chans, n_times))).all()
    sizes = architecture_for(Signal(n_chans, 2, n_times, sfreq))
    assert n_times // sizes.n_segments >= 2 * sizes.n_temporal or sizes.n_segments == 1


def test_input_is_inferred_as_in_braindecode():
    model = GBWAtt(chs_info=[{"ch_name": c} for c in "abcd"], n_outputs=2, sfreq=100, input_window_seconds=0.5)
    assert (model.config["n_chans"], model.config["n_times"]) == (4, 50)
    with pytest.raises(ParameterError, match="n_outputs and n_times cannot be inferred"):
        GBWAtt(n_chans=3)
    with pytest.raises(ParameterError, match=r"n_chans=3 contradicts len\(chs_info\)=2"):
        GBWAtt(n_chans=3, chs_info=[1, 2], n_outputs=2, n_times=30)


def test_singleton_axis_is_accepted_and_other_shapes_are_refused(x):
    model = small().eval()
    assert_close(model(x[:, None]), model(x), 0)
    for wrong in (x[:, :3], x[..., :39], x[0], x[:, None, None]):
        with pytest.raises(ShapeError, match=r"epochs \(batch, 4, 40\)"):
            model(wrong)


# Every constructor argument, with a value that must change the model; what is in the input alone is left out.
KNOBS = {
    "n_spatial": 7,
    "n_temporal": 6,
    "kernel": 8,
    "split": "grouped",
    "n_segments": 3,
    "k": 4,
    "metric": "affine-invariant",
    "theta": 0.5,
    "learn_metric": False,
    "learn_theta": True,
    "score": "gaussian",
    "aggregation": "tangent",
    "formulation": "paper",
    "residual": 0.5,
    "temperature": "learnt",
    "eps": 1e-2,
    "shrinkage": 0.5,
    "n_templates": 2,
    "embed_mean": True,
    "normalize_trace": False,
    "reeig": 0.2,
    "features": False,
    "attention": "euclidean",
    "embedding": False,
    "domain_norm": "affine-invariant",
    "recipe": "best",
    "center_epochs": True,
}
INPUT = {"n_chans", "n_outputs", "n_times", "sfreq", "chs_info", "input_window_seconds"}


def test_every_argument_has_a_knob_test():
    arguments = set(inspect.signature(GBWAtt).parameters)
    assert arguments == INPUT | set(KNOBS) | {"n_domains"}  # which the tests of domains are about


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_changes_the_model(x, name):
    """Another parameter count, or other trained parameters, or another output for the same parameters."""
    changes = {name: KNOBS[name]}
    if name == "features":
        changes["k"] = 3
    model, other = small(), small(**changes)
    trained, others = ({n: p.shape for n, p in m.named_parameters() if p.requires_grad} for m in (model, other))
    if trained == others:
        other.load_state_dict(model.state_dict())
        assert (model.eval()(x) - other.eval()(x)).abs().max() > 1e-4
    assert model.config != other.config


def test_details_have_the_trained_residual_and_temperature(x):
    model = small(residual="learnt", temperature="learnt")
    with torch.no_grad():
        model.attention.residual_logit.fill_(2.0)
        model.attention.log_temperature.fill_(-1.0)
    details = model(x, details=True)
    assert details.residual == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert details.temperature == pytest.approx(math.exp(-1.0))
    fixed = small(residual=0.25, temperature=3.0)(x, details=True)
    assert (fixed.residual, fixed.temperature) == (0.25, 3.0)


# ---- offsets


def test_centred_epochs_have_no_offsets(x):
    """Of channels and trials, as in recordings without a high-pass filter."""
    model, plain = (small(center_epochs=centered).eval() for centered in (True, False))
    offsets = 1e3 * torch.randn(x.shape[0], x.shape[1], 1)
    assert_close(model(x + offsets), model(x), 1e-3)
    assert (plain(x + offsets) - plain(x)).abs().max() > 0.1
    plain.load_state_dict(model.state_dict())
    assert_close(model(x), plain(x - x.mean(-1, keepdim=True)), 0)


# ---- domains

NORMS = ("affine-invariant", "bures-wasserstein")


@pytest.mark.parametrize("norm", NORMS)
def test_domains_are_normalised_by_their_own_statistics(x, norm):
    model = small(domain_norm=norm, n_domains=2)
    domain = torch.arange(len(x)) % 2
    model.adapt(x, domain)
    want = model(x, domain)
    assert not torch.allclose(model(x, 1 - domain), want, atol=1e-3)
    model.adapt(x, 2 + domain)
    assert model.config["n_domains"] == 4
    torch.testing.assert_close(model(x, 2 + domain), want)


@pytest.mark.parametrize("norm", NORMS)
def test_a_plain_batch_is_of_the_first_domain(x, norm):
    model = small(domain_norm=norm, n_domains=2)
    model.adapt(x, torch.ones(len(x), dtype=torch.long))
    torch.testing.assert_close(model(x), model(x, torch.zeros(len(x), dtype=torch.long)))


@pytest.mark.parametrize("norm", NORMS)
def test_a_network_with_domains_is_saved_with_adapted_ones(x, norm, tmp_path):
    model, domain = small(domain_norm=norm, n_domains=2), torch.arange(len(x)) % 3
    model.train()(x, domain % 2)
    model.adapt(x, domain)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(GBWAtt.from_pretrained(tmp_path)(x, domain), model(x, domain), rtol=0, atol=0)


def test_domain_norm_is_trained(x):
    model = small(domain_norm="affine-invariant", n_domains=2).train()
    model(x, torch.arange(len(x)) % 2).square().sum().backward()
    assert model.domain_norm.scale.grad.abs() > 0
    assert model.domain_norm.bias.grad.abs().max() > 0


def test_models_without_domains_have_no_further_parameters(x):
    assert not any("domain" in name for name in small().state_dict())
    with pytest.raises(ParameterError, match="domain_norm=None"):
        small().adapt(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"domain_norm": "affine"}, "Did you mean 'affine-invariant'"),
        ({"n_domains": 2}, "n_domains=2 needs domain_norm"),
        ({"domain_norm": "affine-invariant", "n_domains": 0}, "n_domains=0"),
        ({"domain_norm": "affine-invariant", "attention": "none"}, "domain_norm needs 'spd'"),
    ],
)
def test_wrong_domains_are_refused(arguments, message):
    with pytest.raises(ParameterError, match=message):
        small(**arguments)


def test_sampling_rate_changes_the_rule():
    slow, fast = (GBWAtt(4, 2, 400, sfreq=sfreq) for sfreq in (100.0, 400.0))
    assert slow.config["kernel"] != fast.config["kernel"]


def test_config_rebuilds_the_model(x):
    model = small(metric="gbw", shrinkage="oas", score="inner", split="shared")
    again = GBWAtt(**model.config)
    again.load_state_dict(model.state_dict())
    assert_close(again.eval()(x), model.eval()(x), 0)
    assert again.config == model.config


def test_recipes_differ_and_explicit_arguments_win():
    assert set(RECIPES) == {"paper", "release", "best"}
    for recipe in ("paper", "best"):
        config = small(recipe=recipe).config
        assert (config["theta"], config["learn_metric"], config["normalize_trace"]) == (1.5, True, True)
    assert small(recipe="paper").config["shrinkage"] == 0.0
    assert small(recipe="best").config["shrinkage"] != 0.0
    assert small(recipe="best", shrinkage=0.05).config["shrinkage"] == 0.05
    assert small(recipe="paper").config["aggregation"] == "frechet"
    assert small(recipe="best").config["aggregation"] == "tangent"
    assert small(recipe="best", aggregation="frechet").config["aggregation"] == "frechet"
    assert GBWAtt.for_task("mi").config["recipe"] == "paper"


def test_bwatt_is_the_undeformed_case(x):
    bwatt = small(metric="bures-wasserstein").eval()
    gbwatt = small(theta=1.0, learn_metric=False).eval()
    assert count(bwatt) == count(gbwatt)
    assert_close(gbwatt(x), bwatt(x), 1e-4)


def test_condition_numbers_before_and_after_attention(x):
    details = small()(x, details=True)
    before, after = details.condition_numbers()
    assert before.shape == after.shape == (6, 2)
    assert_close(before, torch.linalg.cond(details.covariances.double()), 1e-6)
    assert (after >= 1).all()


def test_features_alone_are_a_linear_model(x):
    model = small(attention="none").double().eval()
    one, two = x.double(), x.double().flip(0)
    assert_close(model((one + two) / 2), (model(one) + model(two)) / 2, 1e-10)


def test_raw_channels_have_no_branches():
    assert small(features=False)(torch.randn(2, 4, 40)).shape == (2, 3)
    with pytest.raises(ParameterError, match="split='grouped' must be 'time'"):
        small(features=False, split="grouped")


def test_euclidean_attention_is_that_of_transformers(x):
    model = small(attention="euclidean").eval()
    details = model(x, details=True)
    layer, segments = model.attention, details.covariances
    expected = nn.functional.scaled_dot_product_attention(
        layer.query(segments), layer.key(segments), layer.value(segments)
    )
    assert segments.shape == (6, 2, 5 * 20)
    assert_close(details.attended, expected, 1e-5)


@pytest.mark.parametrize("change", [{}, {"formulation": "paper"}, {"learn_theta": True}, {"shrinkage": "learnt"}])
def test_gradients_reach_every_parameter(x, change):
    model = small(**change)
    nn.functional.cross_entropy(model(x), torch.arange(6) % 3).backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        if not name.endswith(("spatial.bias", "temporal.bias")):  # undone by the batch normalisation
            assert parameter.grad.abs().max() > 0, name


def test_double_precision_and_copies(x):
    model = small().eval()
    copied = copy.deepcopy(model)
    assert_close(copied(x), model(x), 0)
    exact = model.double()(x.double())
    assert exact.dtype == torch.float64
    assert_close(copied(x).double(), exact, 1e-3)


def test_a_copy_is_trained_on_its_manifolds(x):
    model = copy.deepcopy(small())
    optimizer = RiemannianAdam(model.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.arange(6) % 3).backward()
        optimizer.step()
    w, m = model.attention.query.weight, model.attention.metric.M
    assert_close(w.mT @ w, torch.eye(3), 1e-5)
    assert torch.linalg.eigvalsh(m).min() > 0
    assert (m - torch.eye(3)).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("trouble", ["constant", "duplicated", "none"])
def test_troubled_recordings_give_finite_gradients(trouble, scale, dtype):
    """Constant or duplicated channels, in volts or in huge units."""
    x = torch.randn(8, 4, 40, generator=torch.Generator().manual_seed(0)).to(dtype) * scale
    if trouble == "constant":
        x[:, 1] = 3 * scale
    elif trouble == "duplicated":
        x[:, 1] = x[:, 0]
    model = small().to(dtype)
    optimizer = RiemannianAdam(model.parameters(), lr=1e-2)
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), torch.arange(8) % 3)
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters())
        optimizer.step()
    assert torch.isfinite(loss)


def test_exported_program_takes_any_batch(x):
    model = small().eval()
    batch = torch.export.Dim("batch", min=1, max=1024)
    program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: batch}}).module()
    for epochs in (x, x[:3], x.repeat(2, 1, 1)):
        assert_close(program(epochs), model(epochs), 1e-4)


@pytest.mark.slow
def test_compiled_model_gives_the_same_and_can_be_trained(x):
    model = small()
    compiled = torch.compile(copy.deepcopy(model))
    for candidate in (model, compiled):
        nn.functional.cross_entropy(candidate(x), torch.arange(6) % 3).backward()
    for (name, one), two in zip(model.named_parameters(), compiled.parameters(), strict=True):
        assert (one.grad - two.grad).abs().max() <= 1e-4 * one.grad.abs().max() + 1e-6, name


@pytest.mark.parametrize(("task", "k"), [("mi", 18), ("ssvep", 6), ("ern", 8)])
def test_raw_channels_have_a_size_of_their_own_for_each_task(task, k):
    model = GBWAtt.for_task(task, features=False)
    signal = TASKS[task].signal
    assert model(torch.randn(2, signal.n_chans, signal.n_times), details=True).attended.shape[-1] == k
    assert GBWAtt(8, 2, 125, features=False).config["k"] == 6


def test_any_epochs_have_a_sequence_to_attend_to():
    assert all(GBWAtt(4, 2, n).config["n_segments"] >= 2 for n in (8, 20, 63, 64, 100, 125, 127, 128, 1000))


@pytest.mark.parametrize("attention", ["none", "euclidean"])
def test_networks_without_matrices_have_no_condition_numbers(x, attention):
    with pytest.raises(ParameterError, match="no condition numbers"):
        small(attention=attention)(x, details=True).condition_numbers()


@pytest.mark.parametrize(("name", "value"), [("n_segments", 2.5), ("k", "a"), ("kernel", 0), ("theta", "a")])
def test_sizes_must_be_numbers(name, value):
    with pytest.raises(ParameterError, match=f"{name}={value!r}"):
        small(**{name: value})


def test_the_release_is_bures_wasserstein_with_tangent_means_of_plain_covariances():
    """The mean of the released code is (Σ w V^½)², M is not trained, theta is 1 and covariances keep their trace."""
    model = GBWAtt(4, 2, 40, recipe="release")
    chosen = {"aggregation": "tangent", "shrinkage": 0.0, "theta": 1.0, "learn_metric": False, "normalize_trace": False}
    assert {name: model.config[name] for name in chosen} == chosen
    assert not model.attention.metric.M.requires_grad
    torch.manual_seed(0)
    release = GBWAtt(4, 2, 40, recipe="release")
    torch.manual_seed(0)
    plain = GBWAtt(4, 2, 40, metric="bures-wasserstein", aggregation="tangent", normalize_trace=False)
    x = torch.randn(3, 4, 40, generator=torch.Generator().manual_seed(1))
    assert_close(release.eval()(x), plain.eval()(x), 1e-5)
    given = GBWAtt(4, 2, 40, recipe="release", theta=0.5, learn_metric=True)
    assert (given.config["theta"], given.attention.metric.M.requires_grad) == (0.5, True)


# ---- kernels

POTENTIALS = {
    "recipe": "best",
    "n_spatial": 4,
    "n_temporal": 4,
    "n_segments": 2,
    "k": 7,
    "n_templates": 2,
    "embed_mean": True,
    "residual": "learnt",
    "temperature": "learnt",
    "center_epochs": True,
}


@pytest.mark.parametrize("options", [POTENTIALS, {**POTENTIALS, "metric": "affine-invariant"}], ids=["gbw", "ai"])
def test_both_paths_give_the_same_network_for_potentials(options, monkeypatch):
    """Logits and all gradients, with templates, means of windows, residual connection and temperature."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 4, 40), torch.arange(6) % 2
    model, results = GBWAtt(4, 2, 40, sfreq=40.0, **options).double(), []
    for _ in range(2):
        model.zero_grad()
        logits = model(x.double())
        torch.nn.functional.cross_entropy(logits, y).backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append({"logits": logits.detach(), **gradients})
        monkeypatch.setattr(gbwatt.geometry._native, "_jacobi", None)
        monkeypatch.setattr(gbwatt.nn._native, "_filters", None)
    for name, found in results[0].items():
        torch.testing.assert_close(found, results[1][name], rtol=1e-7, atol=1e-10, msg=name)

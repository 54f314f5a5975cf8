"""Self-attention of SPD matrices: its laws and options."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from gbwatt.errors import ParameterError
from gbwatt.geometry import AffineInvariant, BuresWasserstein, Euclidean, GeneralizedBuresWasserstein, powm, sqrtm
from gbwatt.nn import FixedMetric, LearnableMetric, SPDSelfAttention
from gbwatt.nn.attention import AGGREGATIONS, METRICS, SCORES, Gaussian, InverseLog
from gbwatt.nn.optim import RiemannianAdam
from tests.geometry.conftest import assert_close

BW = BuresWasserstein()


def attention(seed: int = 0, **options) -> SPDSelfAttention:
    torch.manual_seed(seed)
    return SPDSelfAttention(6, 4, **options).double()


@pytest.fixture
def x(spd):
    return spd(5, 3, k=6, cond=50.0)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("metric", METRICS)
def test_rows_sum_to_one_and_segments_are_equivariant(x, metric, score, aggregation):
    """The order of the segments does not matter: it permutes what comes out."""
    layer = attention(metric=metric, score=score, aggregation=aggregation)
    out = layer(x)
    assert out.value.shape == (5, 3, 4, 4)
    assert_close(out.weights.sum(-1), torch.ones(5, 3, dtype=torch.float64), 1e-13)
    assert torch.linalg.eigvalsh(out.value).min() > 0
    order = [2, 0, 1]
    turned = layer(x[:, order])
    assert_close(turned.value, out.value[:, order], 1e-8)
    assert_close(turned.weights, out.weights[:, order][:, :, order], 1e-8)


def test_forward_is_the_algorithm(x):
    """Algorithm 1, row by row."""
    layer = attention(metric="bures-wasserstein")
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    out = layer(x)
    scores = torch.stack([1 / (1 + torch.log1p(BW.dist(q[:, [i]], k))) for i in range(3)], 1)
    assert_close(out.weights, scores.softmax(-1), 1e-12)
    for i in range(3):
        assert_close(out.value[:, i], BW.mean(v, out.weights[:, i : i + 1]).squeeze(1), 1e-9)


@pytest.mark.parametrize("formulation", ["isometric", "paper"])
def test_undeformed_gbw_is_bures_wasserstein(x, formulation):
    plain = attention(metric="bures-wasserstein")(x)
    deformed = attention(metric="gbw", theta=1.0, formulation=formulation)(x)
    assert_close(deformed.value, plain.value, 1e-9)
    assert_close(deformed.weights, plain.weights, 1e-10)


def test_formulations_differ_once_there_is_a_deformation(x):
    one, two = (attention(theta=1.5, formulation=f)(x).value for f in ("isometric", "paper"))
    assert (one - two).abs().max() > 1e-2


def test_paper_formulation_is_algorithm_2_to_the_letter(x, spd):
    layer = attention(theta=1.5, formulation="paper")
    with torch.no_grad():
        layer.lift.copy_(spd(k=6, cond=3.0, seed=5))
        layer.metric.M.copy_(spd(k=4, cond=3.0, seed=6))
    root_n, root_k = sqrtm(layer.lift), sqrtm(layer.metric.M)
    y = powm((root_n @ x @ root_n + (root_n @ x @ root_n).mT) / 2, 1.5)
    q, k, v = layer.query(y), layer.key(y), layer.value(y)
    d = GeneralizedBuresWasserstein(layer.metric.M, 1.5).dist(q[:, :, None], k[:, None])
    weights = (1 / (1 + torch.log1p(d))).softmax(-1)
    mean = root_k @ BW.mean(v, weights) @ root_k
    out = layer(x)
    assert_close(out.weights, weights, 1e-10)
    assert_close(out.value, powm((mean + mean.mT) / 2, 1.5), 1e-8)


def test_scores_are_what_they_say(x):
    layer = attention(metric="bures-wasserstein")
    q, k = layer.query(x), layer.key(x)
    d = BW.dist(q[:, :, None], k[:, None])
    eye = torch.eye(4, dtype=torch.float64)
    inner = torch.einsum("bqij,bkij->bqk", sqrtm(q) - eye, sqrtm(k) - eye)
    expected = {
        "inverse-log": 1 / (1 + torch.log1p(d)),
        "inverse-log-squared": 1 / (1 + torch.log1p(d**2)),
        "gaussian": torch.exp(-(d**2) / 2),
        "negative-squared": -(d**2),
        "inner": inner,
    }
    assert set(expected) == set(SCORES)
    for name, value in expected.items():
        assert_close(SCORES[name](BW, q, k), value, 1e-10)
    assert_close(Gaussian(sigma=0.5)(BW, q, k), torch.exp(-2 * d**2), 1e-10)


def test_aggregations_are_what_they_say(x):
    layer = attention()
    v, w = layer.value(x), layer(x).weights
    mix = torch.einsum("bqm,bmij->bqij", w, v)
    roots = torch.einsum("bqm,bmij->bqij", w, sqrtm(v))
    expected = {"euclidean": mix, "tangent": roots @ roots, "frechet": BW.mean(v, w)}
    assert set(expected) == set(AGGREGATIONS)
    for name, value in expected.items():
        assert_close(AGGREGATIONS[name](BW, v, w), value, 1e-10)


@pytest.mark.parametrize("theta", [1.5, -0.7])
def test_metric_and_power_are_trained_and_stay_where_they_belong(x, theta):
    """M moves and stays SPD, theta moves and keeps its sign, W moves and keeps orthonormal columns."""
    layer = attention(theta=theta, learn_theta=True)
    before = copy.deepcopy(layer)
    optimizer = RiemannianAdam(layer.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        out = layer(x)
        (out.value[:, 0, 0, 0].sum() + out.weights[:, 0, 1].sum()).backward()
        optimizer.step()
    for (name, new), old in zip(layer.named_parameters(), before.parameters(), strict=True):
        assert (new - old).abs().max() > 1e-3, name
    assert torch.linalg.eigvalsh(layer.metric.M).min() > 0
    assert_close(layer.metric.M, layer.metric.M.mT, 0)
    assert math.copysign(1, float(layer.metric.theta.detach())) == math.copysign(1, theta)
    for w in (layer.query.weight, layer.key.weight, layer.value.weight):
        assert_close(w.mT @ w, torch.eye(4, dtype=torch.float64), 1e-10)


def gradients(layer, x):
    """Results, and derivatives of a function of them in x and all parameters."""
    x = x.clone().requires_grad_()
    out = layer(x)
    value = out.value[..., 0, 1].sum() + out.weights[:, 0, 1].sum()
    return [out.value.detach(), out.weights.detach(), *torch.autograd.grad(value, [x, *layer.parameters()])]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("theta", [1.5, -0.7])
def test_square_maps_give_the_same_whether_they_share_a_decomposition_or_not(x, score, theta):
    """A hook requires the matrices themselves; all values and derivatives agree."""
    torch.manual_seed(0)
    options = {"aggregation": "tangent", "residual": "learnt", "temperature": "learnt", "learn_theta": True}
    layer = SPDSelfAttention(6, 6, score=score, theta=theta, **options).double()
    with torch.no_grad():
        for one in (layer.query, layer.key, layer.value):
            one.weight.copy_(torch.linalg.qr(one.weight).Q)
        layer.metric.M.add_(0.2)
    together, seen = gradients(layer, x), []
    layer.key.register_forward_hook(lambda *given: seen.append(given[-1]))
    for got, want in zip(together, gradients(layer, x), strict=True):
        assert_close(got, want, 1e-8)
    assert len(seen) == 1


def test_what_is_not_to_be_learnt_is_no_trained_parameter():
    trained = {n for n, p in attention(learn_metric=False).named_parameters() if p.requires_grad}
    assert trained == {"query.weight", "key.weight", "value.weight"}
    both = {n for n, p in attention(formulation="paper", learn_metric=False).named_parameters() if p.requires_grad}
    assert both == trained


def test_metric_score_and_aggregation_may_be_objects(x):
    by_name = attention(metric="affine-invariant", score="inverse-log", aggregation="frechet")(x)
    by_object = attention(metric=AffineInvariant(), score=InverseLog(), aggregation=AGGREGATIONS["frechet"])(x)
    assert_close(by_name.value, by_object.value, 0)
    shared = LearnableMetric(4, theta=0.5).double()
    assert attention(metric=shared).metric is shared
    assert isinstance(attention(metric=Euclidean()).metric, FixedMetric)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "bures"}, "metric='bures'.*'gbw'"),
        ({"score": "inverselog"}, "Did you mean 'inverse-log'"),
        ({"aggregation": "mean"}, "aggregation='mean'"),
        ({"formulation": "other"}, "formulation='other'"),
        ({"theta": 0.0}, "theta=0.0"),
        ({"metric": "euclidean", "formulation": "paper"}, "metric='gbw'"),
        ({"residual": 1.5}, "residual=1.5"),
        ({"residual": -0.1}, "residual=-0.1"),
        ({"residual": "learned"}, "residual='learned'.*'learnt'"),
        ({"residual": math.nan}, "residual=nan"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"temperature": math.inf}, "temperature=inf"),
        ({"temperature": "learned"}, "temperature='learned'.*'learnt'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ParameterError, match=message):
        attention(**options)


# ---- residual connection and temperature


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("metric", METRICS)
def test_without_residual_and_temperature_attention_is_that_of_the_paper(x, metric, aggregation):
    """t = 0 and τ = 1 give the bits of the softmax of the scores, and of the means with these weights."""
    layer = attention(metric=metric, aggregation=aggregation, residual="learnt", temperature="learnt")
    with torch.no_grad():
        layer.residual_logit.fill_(-torch.inf)
        layer.log_temperature.fill_(0.0)
    space, (q, k, v) = layer._project(layer.metric(), layer._deform(x))
    weights = layer.score(space, q, k).softmax(-1)
    trained, plain = layer(x), attention(metric=metric, aggregation=aggregation)(x)
    for found in (trained, plain):
        assert torch.equal(found.weights, weights)
        assert torch.equal(found.value, layer._aggregate(space, v, weights))


@pytest.mark.parametrize("metric", METRICS)
def test_a_residual_mixes_the_weights_with_the_identity(x, metric):
    softmax = attention(metric=metric)(x).weights
    mixed = attention(metric=metric, residual=0.25)(x)
    assert_close(mixed.weights, 0.75 * softmax + 0.25 * torch.eye(3, dtype=torch.float64), 1e-14)
    learnt = attention(metric=metric, residual="learnt")(x)
    assert_close(learnt.weights, (softmax + torch.eye(3, dtype=torch.float64)) / 2, 1e-14)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("metric", METRICS)
def test_with_a_residual_of_one_every_value_is_its_own_mean(x, metric, aggregation):
    layer = attention(metric=metric, aggregation=aggregation, residual=1.0)
    assert_close(layer(x).value, layer.value(x), 1e-9)


@pytest.mark.parametrize("formulation", ["isometric", "paper"])
def test_segments_stay_equivariant_with_residual_and_temperature(x, formulation):
    layer = attention(formulation=formulation, residual="learnt", temperature=0.1)
    out, order = layer(x), [2, 0, 1]
    permuted = layer(x[:, order])
    assert_close(permuted.value, out.value[:, order], 1e-8)
    assert_close(permuted.weights, out.weights[:, order][:, :, order], 1e-8)
    assert_close(out.weights.sum(-1), torch.ones(5, 3, dtype=torch.float64), 1e-13)


def test_a_low_temperature_selects_the_nearest_key_and_a_high_one_none(x):
    layer = attention(temperature=1e-6)
    nearest = layer.metric().dist(layer.query(x)[:, :, None], layer.key(x)[:, None]).argmin(-1)
    assert torch.equal(layer(x).weights.argmax(-1), nearest)
    assert layer(x).weights.max(-1).values.min() > 0.99
    assert_close(attention(temperature=1e6)(x).weights, torch.full((5, 3, 3), 1 / 3, dtype=torch.float64), 1e-6)


def test_trained_residual_and_temperature_are_free_numbers_without_decay(x):
    layer = attention(residual="learnt", temperature="learnt")
    assert {"residual_logit", "log_temperature"} <= dict(layer.named_parameters()).keys()
    assert set(layer.undecayed) == {"residual_logit", "log_temperature"}
    layer(x).value[:, 0].log().nan_to_num().sum().backward()
    assert layer.residual_logit.grad.abs() > 0
    assert layer.log_temperature.grad.abs() > 0


@pytest.mark.parametrize("metric", METRICS)
def test_gradients_with_trained_residual_and_temperature(spd, metric):
    layer = attention(metric=metric, residual="learnt", temperature="learnt")
    x = spd(1, 3, k=6, cond=10.0)

    def total(logit, log_temperature):
        parameters = {"residual_logit": logit, "log_temperature": log_temperature}
        out = torch.func.functional_call(layer, parameters, (x,))
        return out.value.square().sum() + out.weights[..., 0].square().sum()

    numbers = (torch.tensor(0.3, dtype=torch.float64), torch.tensor(-0.7, dtype=torch.float64))
    assert torch.autograd.gradcheck(total, tuple(number.requires_grad_() for number in numbers), atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_gradients_are_those_of_finite_differences(spd, metric):
    layer = attention(metric=metric)
    x = spd(1, 3, k=6, cond=10.0).requires_grad_()

    def total(x):
        out = layer((x + x.mT) / 2)
        return out.value.square().sum() + out.weights[..., 0].sum()

    assert torch.autograd.gradcheck(total, x, atol=1e-6)

"""Random calls of the geometry: every one gives the right result, or an error that names what is wrong.

Sizes, dtypes, batch shapes, conditions and scales are random.  Results are compared with textbook formulas in float64,
or put into laws.  The tolerance of each is ``100 k eps`` times what the calculation amplifies rounding by, the
``amplification`` of its case: what a relative change ``eps`` of the arguments, of which rounding cannot tell them, does
to the result.  Where that leaves no digit, results have to be finite and of the right shape.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gbwatt.errors import ConvergenceWarning
from gbwatt.geometry import (
    AffineInvariant,
    BuresWasserstein,
    Euclidean,
    GeneralizedBuresWasserstein,
    LogEuclidean,
    Metric,
    expm,
    generalized_lyapunov,
    invsqrtm,
    logm,
    lyapunov,
    powm,
    reeig,
    sqrtm,
    unvech,
    vech,
)
from gbwatt.geometry.grassmann import leading_subspace, orthonormalise, projection_distance
from gbwatt.nn import BiMap, Embedding, LogEig, ReEig, SegmentCovariance, SPDBatchNorm, SPDSelfAttention
from tests.fuzz.damage import Tally

pytestmark = pytest.mark.fuzz

METRICS = ("euclidean", "log-euclidean", "affine-invariant", "bures", "gbw")


@dataclass
class Setting:
    """What is random of a call."""

    rng: random.Random
    dtype: torch.dtype
    k: int
    batch: tuple[int, ...]
    cond: float
    scale: float

    @classmethod
    def draw(cls, seed: int) -> Setting:
        rng = random.Random(seed)
        torch.manual_seed(seed)
        batch = rng.choice([(), (), (1,), (2,), (5,), (17,), (2, 3), (0,), (2, 0)])
        k = rng.choice([1, 2, 3, 4, 5, 8, 13, 20, 66] if batch != (17,) else [2, 3, 5, 8])
        cond = 10 ** rng.choice([0, rng.uniform(0, 4), rng.uniform(0, 14)])
        return cls(rng, rng.choice([torch.float32, torch.float64]), k, batch, cond, 10 ** rng.uniform(-6, 3))

    def __str__(self) -> str:
        kind = str(self.dtype)[-7:]
        return f"{kind} k={self.k} batch={self.batch} cond={self.cond:.1e} scale={self.scale:.1e}"

    @property
    def eps(self) -> float:
        return float(torch.finfo(self.dtype).eps)

    def spd(self, *more: int, seed: int = 0) -> Tensor:
        """SPD matrices (*batch, *more, k, k), of which the last may be of another condition."""
        generator = torch.Generator().manual_seed(self.rng.randrange(2**31) + seed)
        shape = (*self.batch, *more, self.k, self.k)
        q, _ = torch.linalg.qr(torch.randn(shape, dtype=torch.float64, generator=generator))
        exponents = torch.rand(shape[:-1], dtype=torch.float64, generator=generator)
        exponents[..., 0] = 0
        exponents[..., -1] = 1 if self.k > 1 else 0
        x = (q * self.scale * self.cond ** -exponents[..., None, :]) @ q.mT
        return ((x + x.mT) / 2).to(self.dtype)

    def symmetric(self, size: float = 1.0) -> Tensor:
        x = torch.randn(*self.batch, self.k, self.k, dtype=self.dtype)
        return size * (x + x.mT) / 2

    def metric(self, name: str) -> Metric:
        if name == "gbw":
            plain = Setting(self.rng, self.dtype, self.k, (), 10.0, 1.0)
            return GeneralizedBuresWasserstein(plain.spd(), self.rng.choice([0.5, 1.0, 1.5, -0.7]))
        plain_metrics = {
            "euclidean": Euclidean(),
            "log-euclidean": LogEuclidean(),
            "affine-invariant": AffineInvariant(),
            "bures": BuresWasserstein(),
        }
        return plain_metrics[name]


def condition(*matrices: Tensor) -> float:
    """Largest condition number, at most what rounding can tell."""
    worst = 1.0
    for x in matrices:
        if x.numel():
            values = np.linalg.eigvalsh(x.detach().double().numpy())
            floor = float(torch.finfo(x.dtype).eps) * values[..., -1]
            worst = max(worst, float((values[..., -1] / np.maximum(values[..., 0], floor)).max()))
    return worst


def function(x: Tensor, f: Callable[[Any], Any]) -> Tensor:
    """``f`` of symmetric matrices in float64."""
    values, vectors = np.linalg.eigh(x.detach().double().numpy())
    return torch.from_numpy((vectors * f(values)[..., None, :]) @ vectors.swapaxes(-1, -2))


def close(got: Tensor, want: Tensor, tolerance: float, size: Tensor | float | None = None) -> bool:
    """Whether matrices (..., k, k) agree, relative to the largest entry wanted or to ``size``; all must be finite."""
    if got.shape != want.shape or not bool(torch.isfinite(got).all()):
        return False
    if not got.numel() or tolerance >= 0.1:
        return True
    error = (got.detach().double() - want.detach().double()).abs().amax((-2, -1))
    size = want.detach().double().abs().amax((-2, -1)) if size is None else torch.as_tensor(size).double()
    return bool((error <= tolerance * size).all())


def numbers(got: Tensor, want: Tensor, tolerance: Tensor | float) -> bool:
    """Whether numbers agree up to an absolute tolerance; all must be finite."""
    if got.shape != want.shape or not bool(torch.isfinite(got).all()):
        return False
    return bool(((got.detach().double() - want.detach().double()).abs() <= tolerance).all())


@pytest.fixture(autouse=True)
def _means_may_warn():
    """A mean that did not converge is said by a warning, not an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


# -------------------------------------------------------------------------------------------------- matrix functions


def function_case(s: Setting) -> tuple[str, Callable[[], Tensor], Callable[[Tensor], bool]]:
    x, k, eps = s.spd(), s.k, s.eps
    kappa, unit = condition(x), 100 * s.k * s.eps
    theta = s.rng.choice([-2.0, -0.5, 0.3, 1.0, 2.5])
    root = min(kappa**0.5, eps**-0.5)
    y = s.symmetric(10 ** s.rng.uniform(-8, 1.5))
    size = float(y.abs().max()) if y.numel() else 0.0
    low = s.scale * 10 ** s.rng.uniform(-8, 1)
    top = float(x.abs().max()) if x.numel() else 0.0

    def residual(solution: Tensor, left: Tensor, right: Tensor) -> bool:
        a, m, out = left.double(), right.double(), solution.double()
        want = a @ out @ m + m @ out @ a
        bound = a.abs().amax((-2, -1)) * m.abs().amax((-2, -1)) * out.abs().amax((-2, -1)) * k**2
        return solution.shape == x.shape and close(want, y.double(), unit * condition(right), bound + size)

    eye = torch.eye(k, dtype=s.dtype)
    m = Setting(s.rng, s.dtype, k, (), 10.0, 1.0).spd()
    p = s.rng.randint(1, k)
    cases: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], bool]]] = {
        # the relative change of the smallest eigenvalue is the change of its logarithm
        "logm": (lambda: logm(x), lambda r: close(r, function(x, np.log), unit * kappa, 1.0 + abs(np.log(s.scale)))),
        "expm": (lambda: expm(y), lambda r: close(r, function(y, np.exp), unit * (1 + k * size))),
        "sqrtm": (lambda: sqrtm(x), lambda r: close(r, function(x, lambda v: np.maximum(v, 0) ** 0.5), unit * root)),
        "invsqrtm": (lambda: invsqrtm(x), lambda r: close(r, function(x, lambda v: np.abs(v) ** -0.5), unit * kappa)),
        f"powm {theta}": (
            lambda: powm(x, theta),
            lambda r: close(r, function(x, lambda v: np.abs(v) ** theta), unit * 3 * kappa ** max(0, 1 - theta)),
        ),
        "reeig": (lambda: reeig(x, low), lambda r: close(r, function(x, lambda v: np.maximum(v, low)), unit)),
        "vech": (lambda: unvech(vech(x)), lambda r: torch.equal(r, x)),
        "lyapunov": (lambda: lyapunov(x, y), lambda r: residual(r, x, eye)),
        "generalized": (lambda: generalized_lyapunov(x, m, y), lambda r: residual(r, x, m)),
        # what the subspace leaves of the matrix is as small as can be
        "subspace": (
            lambda: leading_subspace(x, p),
            lambda r: close(
                (r.mT @ x @ r).diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].double(),
                torch.linalg.eigvalsh(x.double())[..., k - p :].sum(-1)[..., None, None],
                unit,
                top * k + 1e-300,
            ),
        ),
        "qr": (
            lambda: orthonormalise(y[..., :p]),
            lambda r: close(r.mT @ r, torch.eye(p, dtype=s.dtype).expand(*s.batch, p, p), unit),
        ),
        "projection": (
            lambda: projection_distance(leading_subspace(x, p), leading_subspace(x, p)),
            lambda r: numbers(r, torch.zeros(s.batch), unit),
        ),
    }
    name = s.rng.choice(list(cases))
    return (name, *cases[name])


def test_matrix_functions_are_right_or_refused():
    tally = Tally()
    for seed in range(600):
        setting = Setting.draw(seed)
        name, call, same = function_case(setting)
        tally.add(f"{seed}: {name} {setting}", call, same)
    tally.finish(at_least=600)


# ------------------------------------------------------------------------------------------------------------- metrics


def textbook_sqdist(name: str, metric: Metric, x: Tensor, y: Tensor) -> Tensor:
    """Squared distances in float64, by the formula of the definition."""
    a, b = x.double(), y.double()
    if name == "euclidean":
        return (a - b).square().sum((-2, -1))
    if name == "log-euclidean":
        return (function(a, np.log) - function(b, np.log)).square().sum((-2, -1))
    if name == "affine-invariant":
        white = function(a, lambda v: v**-0.5)
        return function(white @ b @ white, np.log).square().sum((-2, -1))
    factor = 1.0
    if isinstance(metric, GeneralizedBuresWasserstein):
        m = function(metric.M, lambda v: v**-0.5)
        a, b = (m @ function(z, lambda v: np.abs(v) ** float(metric.theta)) @ m for z in (a, b))
        factor = float(metric.theta) ** -2
    half = function(a, lambda v: np.maximum(v, 0) ** 0.5)
    cross = function(half @ b @ half, lambda v: np.maximum(v, 0) ** 0.5)
    trace = (a + b - 2 * cross).diagonal(dim1=-2, dim2=-1).sum(-1)
    return factor * trace.clamp_min(0)


def amplification(name: str, metric: Metric, *points: Tensor) -> float:
    """How much a verb of a metric may enlarge relative rounding of its points, relative to the largest entries."""
    kappa = condition(*points)
    if name == "euclidean":
        return 1.0
    if name == "bures":
        return kappa  # of the polar factor and the Lyapunov equation
    if name == "gbw":
        assert isinstance(metric, GeneralizedBuresWasserstein)
        power = abs(float(metric.theta))
        return 10 * kappa ** (1 + 2 * max(power, 1 / power))
    return kappa**2


def verb_case(s: Setting, name: str) -> tuple[str, Callable[[], Any], Callable[[Any], bool]]:
    metric = s.metric(name)
    x, y, t = s.spd(), s.spd(), s.rng.uniform(0, 1)
    amp = amplification(name, metric, x, y)
    tolerance = 100 * s.k * s.eps * amp
    square = textbook_sqdist(name, metric, x, y) if amp < 1 / s.eps else torch.zeros(s.batch).double()
    # what is measured: logarithms have an absolute error, other distances one relative to the points
    unit = torch.ones(s.batch).double() if "log" in name or "affine" in name else square
    if name == "euclidean":
        unit = (x.double().square() + y.double().square()).sum((-2, -1))
    elif name in ("bures", "gbw"):
        unit = square + _size(metric, x) + _size(metric, y)
    bound = tolerance * (unit + (unit * square).sqrt() + square) if tolerance < 0.1 else torch.inf
    v = s.symmetric(1e-3 * s.scale / max(condition(x), 1))

    def is_zero(r: Tensor) -> bool:
        return numbers(r, torch.zeros(s.batch), 0.0)

    cases: dict[str, tuple[Callable[[], Any], Callable[[Any], bool]]] = {
        "sqdist": (lambda: metric.sqdist(x, y), lambda r: numbers(r, square, bound)),
        "dist": (lambda: metric.dist(x, y).square(), lambda r: numbers(r, square, bound)),
        "dist to itself": (lambda: metric.dist(x, x.clone()), is_zero),
        "exp log": (lambda: metric.exp(x, _half(metric.log(x, y))), lambda r: _between(metric, x, r, y, tolerance)),
        "geodesic": (lambda: metric.geodesic(x, y, t), lambda r: _on_the_way(metric, x, r, y, t, bound)),
        "ends": (
            lambda: torch.stack([metric.geodesic(x, y, 0.0), metric.geodesic(x, y, 1.0)]),
            lambda r: close(r, torch.stack([x, y]), tolerance),
        ),
        "inner": (lambda: metric.inner(x, v, v), lambda r: numbers(r, r, 0.0) and bool((r >= 0).all())),
        "exp": (lambda: metric.exp(x, v), lambda r: close(r, x, tolerance + 0.1)),
        # coordinates are relative to an origin of size one
        "point": (
            lambda: metric.point(metric.coordinates(x)),
            lambda r: close(r, x, tolerance, x.double().abs().amax((-2, -1)) + 1.0),
        ),
        "interval": (
            lambda: torch.stack(metric.interval(x, v)),
            lambda r: r.shape == (2, *s.batch) and bool(((r[0] < 0) & (r[1] > 0)).all()),
        ),
        "gradient": (lambda: _gradient(metric, x, y), lambda r: numbers(r, r, 0.0)),
    }
    verb = s.rng.choice(list(cases))
    return (verb, *cases[verb])


def _size(metric: Metric, x: Tensor) -> Tensor:
    """The scale of squared Bures-Wasserstein distances from a point: traces of what the chart makes of it."""
    x = x.double()
    if isinstance(metric, GeneralizedBuresWasserstein):
        theta = float(metric.theta)
        x = function(x, lambda v: np.abs(v) ** theta) / theta**2 * 10
    return x.diagonal(dim1=-2, dim2=-1).sum(-1)


def _half(v: Tensor) -> Tensor:
    return (v + v.mT) / 4


def _between(metric: Metric, x: Tensor, middle: Tensor, y: Tensor, tolerance: float) -> bool:
    """Whether the end of half a logarithm is the middle of the geodesic."""
    return close(middle, metric.geodesic(x, y, 0.5), tolerance)


def _on_the_way(metric: Metric, x: Tensor, at: Tensor, y: Tensor, t: float, bound: Tensor | float) -> bool:
    """Whether a point divides the distance by t."""
    if not isinstance(bound, Tensor):
        return close(at, at, 0.0)
    return numbers(metric.sqdist(x, at), t**2 * metric.sqdist(x, y).double(), 4 * bound)


def _gradient(metric: Metric, x: Tensor, y: Tensor) -> Tensor:
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    metric.dist(x, y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    return torch.stack([x.grad, y.grad])


@pytest.mark.parametrize("name", METRICS)
def test_verbs_of_metrics_are_right_or_refused(name):
    tally = Tally()
    for seed in range(300):
        setting = Setting.draw(1000 + seed)
        verb, call, same = verb_case(setting, name)
        tally.add(f"{seed}: {name} {verb} {setting}", call, same)
    tally.finish(at_least=300)


def mean_case(s: Setting, name: str) -> tuple[Callable[[], Tensor], Callable[[Tensor], bool]]:
    """Matrices with common eigenvectors: their mean is that of numbers."""
    metric: Metric = s.metric(name)
    if name == "gbw":
        metric = GeneralizedBuresWasserstein(torch.eye(s.k, dtype=s.dtype), s.rng.choice([0.5, 1.5, -0.7]))
    m, queries = s.rng.randint(1, 6), s.rng.choice([0, 1, 3])
    q, _ = torch.linalg.qr(torch.randn(s.k, s.k, dtype=torch.float64))
    values = s.scale * s.cond ** -torch.rand(*s.batch, m, s.k, dtype=torch.float64)
    points = (q * values[..., None, :]) @ q.mT
    points = ((points + points.mT) / 2).to(s.dtype)
    weights = torch.randn(*s.batch, queries, m, dtype=torch.float64).softmax(-1).to(s.dtype)
    power = {"euclidean": 1.0, "bures": 0.5}.get(name, 0.0)
    if isinstance(metric, GeneralizedBuresWasserstein):
        power = float(metric.theta) / 2
    w = weights.double()
    mean = (w @ values.log()).exp() if power == 0 else (w @ values**power) ** (1 / power)
    want = (q * mean[..., None, :]) @ q.mT
    amp = amplification(name, metric, points)

    def call() -> Tensor:
        given = points.clone().requires_grad_(s.rng.random() < 0.5)
        result = metric.mean(given, weights)
        if given.requires_grad:
            result.sum().backward()
            assert given.grad is not None
            if not bool(torch.isfinite(given.grad).all()):
                return given.grad  # which is not the mean
        return result.detach()

    return call, lambda r: close(r, want.expand(r.shape), 100 * s.k * s.eps * amp + 1e-5 * (s.dtype == torch.float32))


def test_means_are_right_or_refused():
    tally = Tally()
    for seed in range(300):
        setting, name = Setting.draw(2000 + seed), METRICS[seed % len(METRICS)]
        tally.add(f"{seed}: {name} mean {setting}", *mean_case(setting, name))
    tally.finish(at_least=300)


# -------------------------------------------------------------------------------------------------------------- layers


def layer_case(s: Setting) -> tuple[str, Callable[[], Tensor], Callable[[Tensor], bool]]:
    m = s.rng.randint(1, 4)
    x, unit = s.spd(m), 100 * s.k * s.eps
    if not s.batch:
        x = x[None]
    kappa, low = condition(x), 1e-5 * s.scale
    out = s.rng.randint(1, s.k)
    bimap, norm = BiMap(s.k, out).to(s.dtype), SPDBatchNorm(s.k).to(s.dtype).eval()
    attention = SPDSelfAttention(s.k, out, aggregation="tangent").to(s.dtype)
    signal = torch.randn(2, 1, s.k, 40, dtype=s.dtype) * s.scale
    w = bimap.weight.detach().double()

    def rectified(v: Any) -> Any:
        return np.log(np.maximum(v, low))

    def log_close(r: Tensor) -> bool:
        return close(r, function(x, np.log), unit * kappa, 1.0 + abs(np.log(s.scale)))

    def flat(r: Tensor) -> bool:
        amp = min(kappa, float(x.abs().max()) / low if x.numel() else 1.0)
        want = vech(function(x, rectified)).flatten(1)
        return close(r[..., None], want[..., None], unit * amp, 20.0)

    def covariance(r: Tensor) -> bool:
        centred = signal.double() - signal.double().mean(-1, keepdim=True)
        want = centred @ centred.mT
        trace = want.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        return close(r, want / trace + 1e-5 * torch.eye(s.k).double(), unit)

    cases: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], bool]]] = {
        "LogEig": (lambda: LogEig()(x), log_close),
        "ReEig": (lambda: ReEig(low)(x), lambda r: close(r, function(x, lambda v: np.maximum(v, low)), unit)),
        "BiMap": (lambda: bimap(x), lambda r: close(r, w.mT @ x.double() @ w, unit, s.scale)),
        "Embedding": (lambda: Embedding(eps=low)(x), flat),
        "SPDBatchNorm": (lambda: norm(x), lambda r: close(r, x, unit)),
        "SPDSelfAttention": (
            lambda: attention(x).weights,
            lambda r: close(r.sum(-1, keepdim=True), torch.ones(*x.shape[:-2], 1), unit),
        ),
        "SegmentCovariance": (lambda: SegmentCovariance(1)(signal), covariance),
    }
    name = s.rng.choice(list(cases))
    return (name, *cases[name])


def test_layers_are_right_or_refuse():
    tally = Tally()
    for seed in range(250):
        setting = Setting.draw(3000 + seed)
        name, call, same = layer_case(setting)
        tally.add(f"{seed}: {name} {setting}", call, same)
    tally.finish(at_least=250)


# ----------------------------------------------------------------------------------------------------------- bad input


def _nan(x: Tensor) -> Tensor:
    return _with_entry(x, torch.nan)


def _infinite(x: Tensor) -> Tensor:
    return _with_entry(x, torch.inf)


def _with_entry(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    x.view(-1)[int(torch.randint(x.numel(), ()))] = value
    return x


def _skew(x: Tensor) -> Tensor:
    return x + torch.ones_like(x).triu(1) * x.abs().max()


def _not_square(x: Tensor) -> Tensor:
    return torch.cat([x, x[..., :1]], -1)


#: Bad matrices; of the first group every call has to refuse each.
REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "nan": _nan,
    "infinite": _infinite,
    "skew": _skew,
    "not square": _not_square,
    "a vector": lambda x: x.flatten(),
    "a number": lambda x: x.flatten()[0],
    "no matrix": lambda x: x[..., :0, :0],
    "complex": lambda x: x.to(torch.complex64) * (1 + 1j),
    "integers": lambda x: torch.eye(x.shape[-1], dtype=torch.int64).expand(x.shape),
    "half": lambda x: x.half(),
    "bool": lambda x: x > 0,
    "array": lambda x: x.numpy(),
    "list": lambda x: x.tolist(),
    "none": lambda _: None,
}
DOUBTFUL: dict[str, Callable[[Tensor], Any]] = {
    "zero": torch.zeros_like,
    "negative": torch.neg,
    "indefinite": lambda x: x - 0.5 * torch.eye(x.shape[-1], dtype=x.dtype) * x.abs().max(),
    "singular": torch.ones_like,
    "huge": lambda x: x * torch.finfo(x.dtype).max / x.abs().max() / 2,
    "tiny": lambda x: x * (torch.finfo(x.dtype).tiny * 1e3 / x.abs().max()),
    "other precision": lambda x: x.to(torch.float32 if x.dtype == torch.float64 else torch.float64),
    "another size": lambda x: torch.eye(x.shape[-1] + 1, dtype=x.dtype),
    "another batch": lambda x: x.flatten(0, -3)[:1].expand(3, 1, 7, -1, -1) if x.ndim > 2 else x.expand(4, 1, -1, -1),
    "transposed view": lambda x: x.mT.contiguous().mT,
    "on the meta device": lambda x: x.to("meta"),
}


def bad_call(s: Setting, argument: Callable[[Tensor], Any]) -> tuple[str, Callable[[], Any]]:
    """A call of which one matrix is bad."""
    name = s.rng.choice(METRICS)
    metric, x, y = s.metric(name), s.spd(), s.spd()
    bad, k = argument(s.spd()), s.k
    points = s.spd(3)
    weights = torch.full((3,), 1 / 3, dtype=s.dtype)
    calls: dict[str, Callable[[], Any]] = {
        "sqdist": lambda: metric.sqdist(x, bad),
        "dist": lambda: metric.dist(bad, y),
        "log of": lambda: metric.log(x, bad),
        "log at": lambda: metric.log(bad, y),
        "exp along": lambda: metric.exp(x, bad),
        "exp at": lambda: metric.exp(bad, 1e-3 * y),
        "interval": lambda: torch.stack(metric.interval(x, bad)).nan_to_num(nan=torch.nan, posinf=1, neginf=-1),
        "geodesic": lambda: metric.geodesic(bad, y, 0.5),
        "inner at": lambda: metric.inner(bad, x, y),
        "inner of": lambda: metric.inner(x, bad, y),
        "coordinates": lambda: metric.coordinates(bad),
        "point": lambda: metric.point(bad),
        "mean": lambda: metric.mean(bad[..., None, :, :] if isinstance(bad, Tensor) and bad.ndim > 1 else bad),
        "weights": lambda: metric.mean(points, bad if not isinstance(bad, Tensor) else bad.flatten() * weights.sum()),
        "logm": lambda: logm(bad),
        "expm": lambda: expm(bad),
        "sqrtm": lambda: sqrtm(bad),
        "invsqrtm": lambda: invsqrtm(bad),
        "powm": lambda: powm(bad, 0.7),
        "reeig": lambda: reeig(bad),
        "lyapunov": lambda: lyapunov(x, bad),
        "lyapunov at": lambda: lyapunov(bad, x),
        "generalized": lambda: generalized_lyapunov(x, bad, y),
        "subspace": lambda: leading_subspace(bad, 1),
        "LogEig": lambda: LogEig()(bad),
        "ReEig": lambda: ReEig()(bad),
        "BiMap": lambda: BiMap(k, 1).to(s.dtype)(bad),
        "SPDBatchNorm": lambda: SPDBatchNorm(k).to(s.dtype)(bad),
        "SPDSelfAttention": lambda: SPDSelfAttention(k, 1).to(s.dtype)(bad if bad is None else bad[None, None]).value,
        "Embedding": lambda: Embedding()(bad if bad is None else bad[None, None]),
        "metric": lambda: GeneralizedBuresWasserstein(bad, 0.5).dist(x, y),
    }
    verb = s.rng.choice(list(calls))
    if isinstance(bad, list) and verb in ("SPDSelfAttention", "Embedding"):
        return f"{verb} of a list", lambda: LogEig()(bad)
    return f"{name} {verb}", calls[verb]


def never(_: object) -> bool:
    """No result is right."""
    return False


def is_finite(result: Any) -> bool:
    """Whether a result is finite, which those of no values are."""
    return result.device.type == "meta" or bool(torch.isfinite(result).all())


@pytest.mark.parametrize("damage", REFUSED)
def test_bad_matrices_are_refused(damage):
    tally = Tally()
    for seed in range(60):
        setting = Setting.draw(4000 + seed)
        setting.batch, setting.k, setting.cond = setting.rng.choice([(), (2,)]), setting.rng.randint(2, 9), 10.0
        name, call = bad_call(setting, REFUSED[damage])
        if name.endswith(" weights") and damage in ("skew", "not square", "a vector", "none"):
            continue  # weights are no matrix, and may be left out
        tally.add(f"{seed}: {name} {damage} {setting}", call, never)
    tally.finish(at_least=50)


@pytest.mark.parametrize("damage", DOUBTFUL)
def test_doubtful_matrices_are_refused_or_give_finite_results(damage):
    tally = Tally()
    for seed in range(60):
        setting = Setting.draw(5000 + seed)
        setting.batch, setting.k, setting.cond = setting.rng.choice([(), (2,)]), setting.rng.randint(2, 9), 10.0
        name, call = bad_call(setting, DOUBTFUL[damage])
        tally.add(f"{seed}: {name} {damage} {setting}", call, is_finite)
    assert tally.counts["refused"] or damage == "transposed view"
    tally.counts["refused"] += damage == "transposed view"
    tally.finish(at_least=60)

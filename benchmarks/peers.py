"""The Bures-Wasserstein functions of gbwatt and of its neighbours behind one small interface.

Every peer gets the best settings that its documented interface allows: its own batching where it has any,
numpy or torch, whichever is faster, the weighted arithmetic mean as start, and a tolerance that asks for
the same equation residual ``||G - sum_j w_j (G^1/2 X_j G^1/2)^1/2|| / ||G||`` of everyone
(:data:`TOLERANCE`). Loops stand only where a library cannot batch. A library that is not installed is left
out, and :func:`load_peers` says so.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import platform
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

#: Relative residual of the equation of the mean that is requested from every library.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-5}
#: Limits of the quick iteration (descent with unit steps) and of the slow one (`G <- sum_j w_j (...)^1/2`).
QUICK_STEPS, MAX_STEPS = 50, 1000

# variants
RELAXED = "gbwatt, peers' tolerance"
IN_FLOAT64 = "textbook in float64"
LOW_FLOOR = "spd_learn, low floor"


class Peer(ABC):
    """One library: distances and weighted means of batches of SPD matrices, in the dtype of the input."""

    name: str
    distribution: str  # what pip calls it
    differentiable = True  # do gradients flow through `dist` and `mean`?

    @property
    def version(self) -> str:
        """Version of the installed distribution, or ``source`` for a checkout that was never installed."""
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return "source"

    def settings(self) -> contextlib.AbstractContextManager[object]:
        """Global settings of the library during calls and backward passes."""
        return contextlib.nullcontext()

    @abstractmethod
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances of pairs: (n, k, k), (n, k, k) -> (n,)."""

    def cross_dist(self, x: Tensor, y: Tensor) -> Tensor:
        """All distances within each batch item: (b, m, k, k), (b, m, k, k) -> (b, m, m)."""
        b, m, k, _ = x.shape
        rows = x[:, :, None].expand(b, m, m, k, k).reshape(-1, k, k)
        columns = y[:, None].expand(b, m, m, k, k).reshape(-1, k, k)
        return self.dist(rows, columns).reshape(b, m, m)

    @abstractmethod
    def mean(self, points: Tensor, weights: Tensor) -> Tensor:
        """Weighted Fréchet means: (b, m, k, k), (b, q, m) -> (b, q, k, k)."""


# ---------------------------------------------------------------------------------------------- the libraries


class GBWatt(Peer):
    """gbwatt, with its default tolerance or with that of the other libraries."""

    distribution = "gbwatt"

    def __init__(self, relaxed: bool = False) -> None:
        from gbwatt.geometry import BuresWasserstein, barycenter

        self.metric, self._barycenter, self.relaxed = BuresWasserstein(), barycenter, relaxed
        self.name = RELAXED if relaxed else "gbwatt"

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return self.metric.dist(x, y)

    def cross_dist(self, x: Tensor, y: Tensor) -> Tensor:
        return self.metric.dist(x[:, :, None], y[:, None])

    def mean(self, points: Tensor, weights: Tensor) -> Tensor:
        tol = TOLERANCE[points.dtype] if self.relaxed else None
        return self._barycenter(self.metric, points, weights, tol=tol).value


class Textbook(Peer):
    """The textbook formulae with ``torch.linalg.eigh``, fully batched.

    With ``double=True`` they are evaluated in float64 for any input, as a careful user would do.
    """

    distribution = "torch"

    def __init__(self, double: bool = False) -> None:
        self.double = double
        self.name = IN_FLOAT64 if double else "textbook"

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return textbook_distance(self._cast(x), self._cast(y)).to(x.dtype)

    def cross_dist(self, x: Tensor, y: Tensor) -> Tensor:
        return textbook_distance(self._cast(x)[:, :, None], self._cast(y)[:, None]).to(x.dtype)

    def mean(self, points: Tensor, weights: Tensor) -> Tensor:
        tol = TOLERANCE[points.dtype]
        return textbook_mean(self._cast(points), self._cast(weights), tol).to(points.dtype)

    def _cast(self, x: Tensor) -> Tensor:
        return x.double() if self.double else x


class PyRiemann(Peer):
    """pyRiemann: distances broadcast, means one at a time, in numpy (faster) unless gradients are wanted."""

    name, distribution = "pyRiemann", "pyriemann"

    def __init__(self) -> None:
        from pyriemann.geometry.distance import distance_wasserstein
        from pyriemann.geometry.mean import mean_wasserstein

        self._distance, self._mean = distance_wasserstein, mean_wasserstein

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return self._distance(x, y)

    def cross_dist(self, x: Tensor, y: Tensor) -> Tensor:
        return self._distance(x[:, :, None], y[:, None])

    def mean(self, points: Tensor, weights: Tensor) -> Tensor:
        # its criterion is the norm of the tangent mean, stricter than the residual: 8 makes both end alike
        tol = 8 * TOLERANCE[points.dtype] * float(torch.linalg.matrix_norm(points.detach()).mean())

        solve = partial(self._mean, tol=tol, maxiter=QUICK_STEPS)

        def in_torch(x: Tensor, w: Tensor) -> Tensor:
            return solve(x, sample_weight=w)

        def in_numpy(x: Tensor, w: Tensor) -> Tensor:
            return torch.from_numpy(solve(x.numpy(), sample_weight=w.numpy()))

        return _one_by_one(in_torch if _wants_gradient(points, weights) else in_numpy, points, weights)


class POT(Peer):
    """POT: paired distances in one call, barycenters one problem at a time.

    The fixed point of POT converges slowly; its gradient descent with unit steps is the quick iteration,
    but its stopping rule averages the last hundred changes and never fires in time, so it gets a number of
    steps instead: just enough for the covariances of ``geometry.py``, or ``patient``, enough for any.
    Gradients flow through the fixed point only.
    """

    name, distribution = "POT", "POT"
    steps: ClassVar = {torch.float64: 6, torch.float32: 4}

    def __init__(self, patient: bool = False) -> None:
        from ot import gaussian

        self._gaussian, self.patient = gaussian, patient

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return self._gaussian.bures_distance(x, y, paired=True)

    def mean(self, points: Tensor, weights: Tensor) -> Tensor:
        steps = QUICK_STEPS if self.patient else self.steps[points.dtype]
        eps = TOLERANCE[points.dtype] * float(torch.linalg.matrix_norm(points.detach()).mean())

        def descent(x: Tensor, w: Tensor) -> Tensor:
            return self._gaussian.bures_barycenter_gradient_descent(x, weights=w, num_iter=steps)

        def fixed_point(x: Tensor, w: Tensor) -> Tensor:
            return self._gaussian.bures_barycenter_fixpoint(x, weights=w, num_iter=MAX_STEPS, eps=eps)

        return _one_by_one(fixed_point if _wants_gradient(points, weights) else descent, points, weights)


class Geomstats(Peer):
    """geomstats on numpy: distances broadcast, and ``FrechetMean(method="batch")`` batches the means."""

    name = distribution = "geomstats"
    differentiable = False

    def __init__(self) -> None:
        os.environ.setdefault("GEOMSTATS_BACKEND", "numpy")
        if not hasattr(np, "trapz"):
            setattr(np, "trapz", np.trapezoid)  # noqa: B010 (gone in numpy 2; geomstats 2.8 imports it)
        from geomstats.geometry.spd_matrices import SPDBuresWassersteinMetric, SPDMatrices
        from geomstats.learning.frechet_mean import FrechetMean

        self._matrices, self._metric, self._frechet = SPDMatrices, SPDBuresWassersteinMetric, FrechetMean

    def _space(self, k: int) -> Any:
        space = self._matrices(k, equip=False)
        return space.equip_with_metric(self._metric)

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        squared = self._space(x.shape[-1]).metric.squared_dist(x.numpy(), y.numpy())
        return torch.from_numpy(np.sqrt(squared))

    def cross_dist(self, x: Tensor, y: Tensor) -> Tensor:
        b, m, k, _ = x.shape
        return self.dist(x[:, :, None].expand(b, m, m, k, k), y[:, None].expand(b, m, m, k, k))

    def mean(self, points: Tensor, weights: Tensor) -> Tensor:
        b, q, m = weights.shape
        k = points.shape[-1]
        x = points.movedim(1, 0)[:, :, None].expand(m, b, q, k, k).reshape(m, b * q, k, k).numpy()
        start = torch.einsum("bqm,bmij->bqij", weights, points).reshape(b * q, k, k).numpy()
        estimator = self._frechet(self._space(k), method="batch")
        # the criterion is the sum over the batch of the squared norms of the tangent means, again stricter
        scale = float(np.trace(start, axis1=-2, axis2=-1).sum())
        epsilon = (16 * TOLERANCE[points.dtype]) ** 2 * scale
        estimator.set(init_point=start, epsilon=epsilon, max_iter=QUICK_STEPS)
        # geomstats divides the weighted sum by the number of points: undo it
        w = weights.reshape(b * q, m).T.numpy() * np.asarray(m, dtype=x.dtype)
        return torch.from_numpy(estimator.fit(x, weights=w).estimate_).reshape(b, q, k, k)


class SPDLearn(Peer):
    """spd_learn: distances and means batched; weights are shared by a whole call.

    Weights that differ per problem enter through the points: the mean of ``X_j`` with weights ``w_j`` is the
    mean of ``(m w_j)^2 X_j`` with equal weights. With ``clamp=False`` its absolute floors on eigenvalues,
    global settings, are put four orders lower, where they do least harm to values and gradients.
    """

    distribution = "spd_learn"
    floors = ("eigval_sqrt_scale", "eigval_inv_sqrt_scale", "loewner_equal_scale")

    def __init__(self, clamp: bool = True) -> None:
        from spd_learn.functional import numerical
        from spd_learn.functional.metrics import bures_wasserstein

        self._bw, self._context = bures_wasserstein, numerical.NumericalContext
        self._scales = {} if clamp else dict.fromkeys(self.floors, 1e-2)
        self.name = "spd_learn" if clamp else LOW_FLOOR

    def settings(self) -> contextlib.AbstractContextManager[object]:
        return self._context(**self._scales)

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return self._bw.bures_wasserstein_distance(x, y)

    def mean(self, points: Tensor, weights: Tensor) -> Tensor:
        m = points.shape[1]
        x = (m * weights).square()[..., None, None] * points[:, None]  # (b, q, m, k, k)
        tol = TOLERANCE[points.dtype]
        return self._bw.bures_wasserstein_mean(x.movedim(2, 0), max_iter=MAX_STEPS, tol=tol)


# ------------------------------------------------------------------------------------------ textbook formulae


def textbook_distance(x: Tensor, y: Tensor) -> Tensor:
    """``(tr X + tr Y - 2 tr (X^1/2 Y X^1/2)^1/2)^1/2``, broadcasting, by two eigendecompositions."""
    root, _ = _roots(x)
    fidelity = torch.linalg.eigvalsh(root @ y @ root).clamp_min(0).sqrt().sum(-1)
    return (_trace(x) + _trace(y) - 2 * fidelity).clamp_min(0).sqrt()


def textbook_mean(points: Tensor, weights: Tensor, tol: float, max_steps: int = MAX_STEPS) -> Tensor:
    """Fixed point of ``H(G) = G^-1/2 (sum_j w_j (G^1/2 X_j G^1/2)^1/2)^2 G^-1/2``, all problems at once.

    A problem leaves the batch when it has reached ``tol`` or does not improve; its best iterate is returned.
    """
    (b, q, m), k = weights.shape, points.shape[-1]
    x = points[:, None].expand(b, q, m, k, k).reshape(-1, m, k, k)
    w = weights.reshape(-1, m, 1, 1)
    g = means = (w * x).sum(1)
    active, best = torch.arange(b * q), g.new_full((b * q,), torch.inf)
    for _ in range(max_steps):
        step, residual = _textbook_step(g, x[active], w[active])
        improved = residual < best
        means = means.index_copy(0, active[improved], g[improved])
        again = improved & (residual > tol)
        if not again.any():
            break
        g, active, best = step[again], active[again], residual[again]
    return means.reshape(b, q, k, k)


def _textbook_step(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """``H(G)`` (n, k, k) and the relative residual of ``G`` (n,)."""
    root, inverse_root = _roots(g)
    inner, _ = _roots(root[:, None] @ x @ root[:, None])
    image = (w * inner).sum(1)
    residual = torch.linalg.matrix_norm(g - image) / torch.linalg.matrix_norm(g)
    step = inverse_root @ image @ image @ inverse_root
    return (step + step.mT) / 2, residual.detach()


def _roots(x: Tensor) -> tuple[Tensor, Tensor]:
    """Square root and inverse square root of SPD matrices; eigenvalues are kept above rounding level."""
    values, vectors = torch.linalg.eigh(x)
    floor = torch.finfo(x.dtype).eps * values[..., -1:].detach()
    roots = values.maximum(floor).sqrt()[..., None, :]
    return (vectors * roots) @ vectors.mT, (vectors / roots) @ vectors.mT


def _trace(x: Tensor) -> Tensor:
    return x.diagonal(dim1=-2, dim2=-1).sum(-1)


# ----------------------------------------------------------------------------------------------- loops, casts


def _wants_gradient(*tensors: Tensor) -> bool:
    return any(t.requires_grad for t in tensors)


def _one_by_one(solve: Callable[[Tensor, Tensor], Tensor], points: Tensor, weights: Tensor) -> Tensor:
    """Apply ``solve(points (m, k, k), weights (m,))`` to each batch item and query."""
    problems = [(x, w) for x, rows in zip(points, weights, strict=True) for w in rows]
    means = torch.stack([solve(x, w) for x, w in problems])
    return means.reshape(*weights.shape[:2], *points.shape[-2:])


# ------------------------------------------------------------------------------------- what the reports share

FACTORIES: dict[str, Callable[..., Peer]] = {
    "gbwatt": GBWatt,
    RELAXED: lambda: GBWatt(relaxed=True),
    "textbook": Textbook,
    IN_FLOAT64: lambda: Textbook(double=True),
    "pyRiemann": PyRiemann,
    "POT": POT,
    "geomstats": Geomstats,
    "spd_learn": SPDLearn,
    LOW_FLOOR: lambda: SPDLearn(clamp=False),
}


def load_peers(names: Sequence[str] | None = None, patient: bool = False) -> tuple[list[Peer], list[str]]:
    """Build the named peers (all by default); also return the names of those whose import failed."""
    unknown = set(names or ()) - set(FACTORIES)
    if unknown:
        raise SystemExit(f"unknown peers {sorted(unknown)}; there are {list(FACTORIES)}")
    peers, missing = [], []
    for name in names or FACTORIES:
        try:
            peers.append(FACTORIES[name](patient) if name == "POT" else FACTORIES[name]())
        except ImportError:
            missing.append(name)
    return peers, missing


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, logs and prints of other libraries; the reported errors show their failures."""
    previous = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(previous)


def setting(peers: Sequence[Peer], missing: Sequence[str]) -> str:
    """One paragraph: versions, threads and machine."""
    versions = {p.distribution: p.version for p in peers}
    versions |= {"torch": torch.__version__, "numpy": np.__version__}
    text = ", ".join(f"{name} {versions[name]}" for name in sorted(versions, key=str.lower))
    absent = f" Not installed: {', '.join(missing)}." if missing else ""
    return (
        f"Python {platform.python_version()}, {text}; {torch.get_num_threads()} torch thread(s) on "
        f"{_processor()}, {os.cpu_count()} core(s), {platform.system()}.{absent}"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found.group(1).strip() if found else platform.machine()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def publish(text: str, file: Path, marker: str, introduction: str) -> None:
    """Put ``text`` between the markers of ``file``; a new file starts with ``introduction``."""
    begin, end = f"<!-- begin {marker} -->", f"<!-- end {marker} -->"
    old = file.read_text(encoding="utf-8") if file.exists() else introduction.rstrip() + "\n"
    if begin not in old:
        old = f"{old.rstrip()}\n\n{begin}\n{end}\n"
    head, rest = old.split(begin, 1)
    if end not in rest:
        raise SystemExit(f"{file.name} has '{begin}' without '{end}'; put the marker back or delete both")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{head}{begin}\n{text.strip()}\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")

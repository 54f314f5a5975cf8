"""Layers of SPD matrices: bilinear map, batch normalisation, eigenvalue rectification and embedding (MEEM)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of, check_same_kind, check_square
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.geometry import AffineInvariant, BuresWasserstein, Metric, _native
from gbwatt.geometry._context import apply, differentiable_once, full_precision
from gbwatt.geometry.linalg import (
    LOG,
    LOG_REEIG,
    REEIG,
    congruence,
    expm,
    in_range,
    invsqrtm,
    logm,
    reeig,
    spectral,
    sqrtm,
)
from gbwatt.geometry.symmetric import symmetric_part, vech
from gbwatt.nn.optim import positive_definite, stiefel


class _Map(torch.autograd.Function):
    """``Wᵀ X W`` by the compiled kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return _native.bimap(x, w)

    @staticmethod
    @differentiable_once("a bilinear map")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        return _native.bimap_adjoint(x, w, grad)


class BiMap(nn.Module):
    r"""Bilinear map :math:`X ↦ W^⊤ X W`, (..., n, n) -> (..., k, k), with W (n, k) on the Stiefel manifold [1]_.

    Parameters
    ----------
    n, k : int
        Sizes of the input and output matrices, k ≤ n.

    References
    ----------
    .. [1] Z. Huang, L. Van Gool, "A Riemannian network for SPD matrix learning", AAAI 2017.

    Examples
    --------
    >>> BiMap(4, 2)(torch.eye(4).expand(3, 4, 4)).shape
    torch.Size([3, 2, 2])
    """

    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        check_at_least("n", n, 1)
        check_at_least("k", k, 1)
        if not 1 <= k <= n:
            raise ParameterError(
                f"k={k} must be between 1 and n={n}: a map with orthonormal columns cannot increase the dimension."
            )
        self.weight = stiefel(n, k)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map symmetric matrices (..., n, n)."""
        check_same_kind(weight=self.weight, x=x)
        x = symmetric_part("x", x)
        if x.shape[-1] != len(self.weight):
            raise ShapeError(
                f"'x' {tuple(x.shape)} does not fit a map of {len(self.weight)}x{len(self.weight)} matrices; use "
                f"BiMap(n={x.shape[-1]}, k)."
            )
        if _native.supports(x):
            return apply(_Map, x, self.weight)
        return congruence(self.weight.mT, x)


class SPDBatchNorm(nn.Module):
    r"""Affine-invariant batch normalisation, (batch, ..., k, k) -> (batch, ..., k, k) [1]_.

    Matrices are transported so that their mean G becomes a trained matrix B:
    :math:`X ↦ B^{1/2} G^{-1/2} X G^{-1/2} B^{1/2}`.  In training, G is the Karcher mean of the batch, treated as a
    constant, and the running mean moves towards it along the geodesic.  In evaluation, G is the running mean.

    The Karcher mean is iterated to convergence.  The authors' code takes a single step of the Karcher flow from the
    arithmetic mean, which is accurate only for matrices that are close to each other.

    Parameters
    ----------
    k : int
        Size of the matrices.
    momentum : float in (0, 1]
        Fraction of the geodesic to the batch mean by which the running mean moves in each step.

    References
    ----------
    .. [1] D. Brooks, O. Schwander, F. Barbaresco, J.-Y. Schneider, M. Cord, "Riemannian batch normalization for SPD
       neural networks", NeurIPS 2019.
    """

    running_mean: Tensor

    def __init__(self, k: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum, self.metric = _checked_momentum(momentum), AffineInvariant()
        self.bias = positive_definite(k)
        self.register_buffer("running_mean", torch.eye(k))

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Normalise matrices (batch, ..., k, k)."""
        check_same_kind(bias=self.bias, x=x)
        x = symmetric_part("x", x)
        check_square(bias=self.bias, x=x)
        if self.training:
            mean = self.metric.mean(x.detach().reshape(-1, *x.shape[-2:]))
            with torch.no_grad():
                self.running_mean.copy_(self.metric.geodesic(self.running_mean, mean, self.momentum))
        else:
            mean = self.running_mean
        return congruence(sqrtm(self.bias), congruence(invsqrtm(mean), x))


def _checked_momentum(momentum: float) -> float:
    """Return ``momentum``, by which running statistics move; raise ParameterError unless it is in (0, 1]."""
    if not 0 < momentum <= 1:
        raise ParameterError(f"momentum={momentum} must be in (0, 1].")
    return momentum


class _Centring(ABC):
    """Displacements of matrices from their mean, under a metric; those of a batch have the mean 0."""

    metric: Metric

    @abstractmethod
    def displacements(self, x: Tensor, mean: Tensor) -> Tensor:
        """Symmetric matrices (..., k, k), 0 where ``x`` is the mean; their norm is the distance after centring."""

    @abstractmethod
    def place(self, displacements: Tensor, bias: Tensor) -> Tensor:
        """Matrices with these displacements from the mean ``bias``: the inverse of :meth:`displacements`."""


class _AffineInvariantCentring(_Centring):
    """``log(G^-½ X G^-½)`` and ``B^½ exp(D) B^½``."""

    metric = AffineInvariant()

    def displacements(self, x: Tensor, mean: Tensor) -> Tensor:
        """``log(G^-½ X G^-½)``."""
        return logm(congruence(invsqrtm(mean), x))

    def place(self, displacements: Tensor, bias: Tensor) -> Tensor:
        """``B^½ exp(D) B^½``."""
        return congruence(sqrtm(bias), expm(displacements))


class _BuresWassersteinCentring(_Centring):
    """``T - I`` for the optimal transport map T from the mean to X, with X = T G T, and ``(I + D) B (I + D)``.

    Eigenvalues of I + D below :attr:`smallest` are raised to it: there, the geodesic has left the positive definite
    matrices.
    """

    metric = BuresWasserstein()
    smallest = 1e-2

    def displacements(self, x: Tensor, mean: Tensor) -> Tensor:
        """``T - I`` with ``T = G^-½ (G^½ X G^½)^½ G^-½``."""
        return congruence(invsqrtm(mean), sqrtm(congruence(sqrtm(mean), x))) - _eye(x)

    def place(self, displacements: Tensor, bias: Tensor) -> Tensor:
        """``(I + D) B (I + D)``."""
        return congruence(reeig(_eye(displacements) + displacements, self.smallest), bias)


def _eye(x: Tensor) -> Tensor:
    """Identity (k, k) of the dtype and device of matrices (..., k, k)."""
    return torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


_CENTRINGS = {"affine-invariant": _AffineInvariantCentring(), "bures-wasserstein": _BuresWassersteinCentring()}


class DomainSPDBatchNorm(nn.Module):
    r"""Batch normalisation with statistics of each domain, such as a subject, (batch, m, k, k) -> (batch, m, k, k).

    The matrices of domain d are centred at their Fréchet mean :math:`G_d`, scaled by their dispersion :math:`ν_d`, and
    moved to a trained matrix B.  With the displacements D from the mean,

    .. math:: D = \log(G_d^{-1/2} X G_d^{-1/2}), \quad
              Y = B^{1/2} \exp\left(\tfrac{s}{ν_d} D\right) B^{1/2}

    under the affine-invariant metric [1]_ [2]_, and with the optimal transport map T from :math:`G_d` to X, for which
    :math:`X = T G_d T`,

    .. math:: D = T - I, \quad Y = \left(I + \tfrac{s}{ν_d} D\right) B \left(I + \tfrac{s}{ν_d} D\right)

    under the Bures-Wasserstein metric.  In both cases, the matrices of a domain with :math:`ν_d^2 = \mathrm{mean}
    ‖D‖_F^2` get the Fréchet mean B and, for B = I, the dispersion s.  The bias B and the scale s are shared by all
    domains.

    In training, the running statistics of the domains in the batch first move towards those of the batch, the mean
    along the geodesic, and then normalise the batch [2]_.  The first batch of a domain initialises them.  Gradients
    include the statistics of the batch, but not the earlier ones.  In evaluation, running statistics are used as they
    are.  The statistics of a sequence of m matrices are those of all its matrices together.

    Parameters
    ----------
    k : int
        Size of the matrices.
    n_domains : int
        Number of domains; :meth:`adapt` adds more.
    metric : "affine-invariant" or "bures-wasserstein"
    momentum : float in (0, 1]
        Fraction of the way to the statistics of a batch by which the running statistics move in each step.  The first
        steps of a domain are larger, so that early batches have equal weights; with 1, batches are normalised by their
        own statistics.
    eps : float
        Added to the squared dispersion.

    Attributes
    ----------
    running_mean : Tensor, shape (n_domains, k, k)
    running_var : Tensor, shape (n_domains,)
        Squared dispersion.
    n_batches : Tensor, shape (n_domains,)
        Number of batches that the statistics contain, at most 1 / momentum.

    References
    ----------
    .. [1] D. Brooks, O. Schwander, F. Barbaresco, J.-Y. Schneider, M. Cord, "Riemannian batch normalization for SPD
       neural networks", NeurIPS 2019.
    .. [2] R. J. Kobler, J. Hirayama, Q. Zhao, M. Kawanabe, "SPD domain-specific batch normalization to crack
       interpretable unsupervised domain adaptation in EEG", NeurIPS 2022.

    Examples
    --------
    >>> norm = DomainSPDBatchNorm(k=3, n_domains=2).eval()
    >>> x = 5 * torch.eye(3).expand(4, 1, 3, 3)
    >>> norm.adapt(x, torch.tensor([1, 1, 1, 1]))
    >>> norm(x, torch.tensor([1, 1, 1, 1]))[0, 0].detach().round(decimals=3)
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """

    METRICS: ClassVar[tuple[str, ...]] = tuple(_CENTRINGS)
    undecayed = ("scale",)
    running_mean: Tensor
    running_var: Tensor
    n_batches: Tensor

    def __init__(
        self, k: int, n_domains: int = 1, metric: str = "affine-invariant", momentum: float = 0.1, eps: float = 1e-5
    ) -> None:
        super().__init__()
        check_at_least("k", k, 1)
        check_at_least("n_domains", n_domains, 1)
        check_one_of("metric", metric, self.METRICS)
        self.metric, self.momentum, self.eps = metric, _checked_momentum(momentum), _checked_threshold(eps)
        self.bias = positive_definite(k)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("running_mean", torch.eye(k).repeat(n_domains, 1, 1))
        self.register_buffer("running_var", torch.ones(n_domains))
        self.register_buffer("n_batches", torch.zeros(n_domains, dtype=torch.long))

    @property
    def n_domains(self) -> int:
        """Number of domains."""
        return len(self.running_mean)

    def extra_repr(self) -> str:
        """Describe the options for repr."""
        return f"k={len(self.bias)}, n_domains={self.n_domains}, metric={self.metric!r}, momentum={self.momentum:g}"

    @full_precision
    def forward(self, x: Tensor, domain: Tensor | None = None) -> Tensor:
        """Normalise matrices.

        Parameters
        ----------
        x : Tensor, shape (batch, m, k, k)
        domain : Tensor of int64, shape (batch,), optional
            Number of each sequence's domain; by default domain 0.

        Returns
        -------
        Tensor, shape (batch, m, k, k)
        """
        known = domain is None or not len(domain) or int(domain.max()) < self.n_domains
        x, domain = self._checked(x, domain)
        if not known:
            raise ParameterError(
                f"domain: {int(domain.max())} is not known, there are {self.n_domains} domains, numbered from 0; "
                "estimate the statistics of a new one by adapt(x, domain)."
            )
        centring = _CENTRINGS[self.metric]
        if self.training:
            mean, displacements, var = self._updated_statistics(x, domain)
        else:
            mean, var = self.running_mean[domain], self.running_var[domain]
            displacements = centring.displacements(x, mean[:, None])
        factor = self.scale * (var + self.eps).rsqrt()  # (batch,)
        return centring.place(factor[:, None, None, None] * displacements, self.bias)

    def _updated_statistics(self, x: Tensor, domain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Move the running statistics towards those of a batch.

        Returns the new mean (batch, k, k) and squared dispersion (batch,) of each sequence's domain, differentiable in
        ``x``, and the displacements of ``x`` (batch, m, k, k).
        """
        centring = _CENTRINGS[self.metric]
        present, position = domain.unique(return_inverse=True)
        count = self.n_batches[present]
        step = (1 / (count + 1)).to(x.dtype).clamp_min(self.momentum)  # (q,)
        means = centring.metric.geodesic(self.running_mean[present], self._means(x, position, len(present)), step)
        displacements = centring.displacements(x, means[position][:, None])
        var = torch.lerp(self.running_var[present], _mean_square(displacements, position, len(present)), step)
        with torch.no_grad():
            self.running_mean[present], self.running_var[present] = means.detach(), var.detach()
            self.n_batches[present] = (count + 1).clamp_max(math.ceil(1 / self.momentum))
        return means[position], displacements, var[position]

    def _means(self, x: Tensor, position: Tensor, n: int) -> Tensor:
        """Fréchet means (n, k, k) of the sequences of each domain; ``position`` (batch,) is the domain's number."""
        member = position == torch.arange(n, device=position.device)[:, None]  # (n, batch)
        sizes = member.sum(1)
        rows = member.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(sizes.max())]
        weights = member.gather(1, rows).to(x.dtype) / (sizes * x.shape[1])[:, None]  # 0 for rows of other domains
        points = x[rows].flatten(1, 2)  # (n, largest domain * m, k, k)
        weights = weights.repeat_interleave(x.shape[1], 1)[:, None]
        return _CENTRINGS[self.metric].metric.mean(points, weights).squeeze(1)

    @torch.no_grad()
    @full_precision
    def adapt(self, x: Tensor, domain: Tensor | None = None) -> None:
        """Set the statistics of domains to those of given matrices, without labels; new domains are added.

        Parameters
        ----------
        x : Tensor, shape (batch, m, k, k)
        domain : Tensor of int64, shape (batch,), optional
            Number of each sequence's domain; by default domain 0.
        """
        x, domain = self._checked(x, domain)
        self._add_domains(int(domain.max()) + 1 - self.n_domains)
        present, position = domain.unique(return_inverse=True)
        means = self._means(x, position, len(present))
        displacements = _CENTRINGS[self.metric].displacements(x, means[position][:, None])
        self.running_mean[present] = means
        self.running_var[present] = _mean_square(displacements, position, len(present))
        self.n_batches[present] = math.ceil(1 / self.momentum)

    def keep(self, domain: int) -> None:
        """Keep the statistics of one domain, which becomes domain 0, and forget those of the others."""
        self.running_mean = self.running_mean[domain : domain + 1]
        self.running_var = self.running_var[domain : domain + 1]
        self.n_batches = self.n_batches[domain : domain + 1]

    def _add_domains(self, n: int) -> None:
        """Add n domains with the statistics of an unknown one, if n is positive."""
        if n > 0:
            self.running_mean = torch.cat([self.running_mean, _eye(self.running_mean).expand(n, -1, -1)])
            self.running_var = torch.cat([self.running_var, self.running_var.new_ones(n)])
            self.n_batches = torch.cat([self.n_batches, self.n_batches.new_zeros(n)])

    def _checked(self, x: Tensor, domain: Tensor | None) -> tuple[Tensor, Tensor]:
        """Check matrices and domains; return them, the domains as numbers (batch,)."""
        check_same_kind(bias=self.bias, x=x)
        x = symmetric_part("x", x)
        check_square(bias=self.bias, x=x)
        if x.ndim != 4 or not len(x):
            raise ShapeError(f"'x' {tuple(x.shape)} must be sequences (batch, m, k, k); use x[:, None] for m = 1.")
        if domain is None:
            return x, torch.zeros(len(x), dtype=torch.long, device=x.device)
        if domain.dtype != torch.int64 or domain.shape != x.shape[:1]:
            raise ShapeError(
                f"'domain' {tuple(domain.shape)} of {domain.dtype} does not match 'x' {tuple(x.shape)}; int64 "
                f"({len(x)},) is required, a number for each sequence."
            )
        if int(domain.min()) < 0:
            raise ParameterError(f"domain: {int(domain.min())} must be 0 or more.")
        return x, domain


def _mean_square(displacements: Tensor, position: Tensor, n: int) -> Tensor:
    """Mean squared norms (n,) of the displacements (batch, m, k, k) of each domain."""
    squares = displacements.square().sum((-2, -1)).mean(1)  # (batch,)
    sums = squares.new_zeros(n).index_add(0, position, squares)
    return sums / position.bincount(minlength=n)


def _checked_threshold(eps: float) -> float:
    """Return ``eps``, the threshold of eigenvalue rectification; raise ParameterError unless it is positive."""
    if not (math.isfinite(eps) and eps > 0):
        raise ParameterError(f"eps={eps} must be a positive number.")
    return eps


class ReEig(nn.Module):
    r"""Eigenvalue rectification :math:`U \max(ε, Λ) U^⊤`, (..., k, k) -> (..., k, k).

    Parameters
    ----------
    eps : float
        Threshold ε.
    """

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = _checked_threshold(eps)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Rectify matrices (..., k, k)."""
        return in_range("ReEig", spectral(symmetric_part("x", x), REEIG, self.eps))


class LogEig(nn.Module):
    """Matrix logarithm, (..., k, k) -> (..., k, k)."""

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Logarithm of positive definite matrices (..., k, k)."""
        return spectral(symmetric_part("x", x), LOG)


class Embedding(nn.Module):
    """Upper triangles of a sequence as one vector, (batch, m, k, k) -> (batch, m * k * (k + 1) / 2).

    Parameters
    ----------
    logarithm : bool
        Whether to apply :class:`ReEig` and :class:`LogEig` first, in one decomposition.
    eps : float
        Threshold of the rectification.

    Examples
    --------
    >>> Embedding()(torch.eye(3).expand(2, 5, 3, 3)).shape
    torch.Size([2, 30])
    """

    def __init__(self, logarithm: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.logarithm, self.eps = logarithm, _checked_threshold(eps)

    def extra_repr(self) -> str:
        """Describe the options for repr."""
        return f"eps={self.eps:g}" if self.logarithm else "logarithm=False"

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Embed sequences (batch, m, k, k)."""
        x = symmetric_part("x", x)
        if x.ndim < 3:
            raise ShapeError(
                f"'x' {tuple(x.shape)} is a single matrix, but sequences (batch, m, k, k) are required: x[None, None]."
            )
        if self.logarithm:
            x = spectral(x, LOG_REEIG, self.eps)
        return vech(x).flatten(1)

"""Sequences of covariance matrices of features (SPDM) and of tokens."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of, check_same_kind
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.geometry._context import apply, differentiable_once, full_precision
from gbwatt.geometry.symmetric import sym
from gbwatt.nn import _native

Shrinkage = float | Literal["samples", "oas", "learnt"]
START = 0.1  # initial value of trained shrinkage


class _CentredProduct(torch.autograd.Function):
    r""":math:`y y^⊤` for :math:`y = x - \bar x`; its derivative :math:`(G + G^⊤) y` is already centred."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        ctx.save_for_backward(x, centred)
        return sym(centred @ centred.mT)

    @staticmethod
    @differentiable_once("the covariance of windows")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, centred = ctx.saved_tensors
        return ((grad + grad.mT) @ centred,)


def centred_product(x: Tensor) -> Tensor:
    """Products of centred rows, (..., n, samples) -> (..., n, n)."""
    return apply(_CentredProduct, x)


class _Windows(torch.autograd.Function):
    """``keep Σ + lift I`` for trace-one covariances or moments Σ of windows, by the compiled kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: int, keep: float, lift: float, embed_mean: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.keep, ctx.embed_mean = keep, embed_mean
        out = _native.covariances(x.flatten(0, 1).contiguous(), windows, keep, lift, embed_mean)
        return out.view(len(x), -1, *out.shape[2:])

    @staticmethod
    @differentiable_once("the covariance of windows")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        rows = x.flatten(0, 1).contiguous()
        grad = grad.contiguous().view(len(rows), -1, *grad.shape[-2:])
        return _native.covariance_gradient(rows, grad, ctx.keep, ctx.embed_mean).view(x.shape), None, None, None, None


def _tiny(x: Tensor) -> float:
    """Smallest positive normal number of the dtype of ``x``."""
    return torch.finfo(x.dtype).tiny


def _in_range(product: Tensor) -> bool:
    """Whether sums of squares are far from underflow and overflow."""
    trace = product.diagonal(dim1=-2, dim2=-1).sum(-1)
    return bool(((trace > 1e6 * _tiny(product)) & (trace < torch.finfo(product.dtype).max / 1e6)).all())


class SegmentCovariance(nn.Module):
    r"""Trace-one covariances of consecutive windows, (batch, branches, n, times) -> (batch, branches * m, n, n).

    Each window is centred.  Its covariance :math:`Σ = \mathrm{cov} / \mathrm{tr}\, \mathrm{cov}` is regularised to
    :math:`(1 - ρ) Σ + ρ I / n + ε I`.  The first windows are one sample longer if the number of samples is not a
    multiple of the number of windows.

    Event-related potentials are slow and phase-locked: they are in the means of windows, which centring removes.  With
    ``embed_mean``, windows are not centred, and a constant row of ones is appended.  Instead of the covariance C the
    layer returns the embedding of the normal distribution with mean μ and covariance C [2]_,

    .. math:: \begin{pmatrix} C + μ μ^⊤ & μ \\ μ^⊤ & 1 \end{pmatrix},

    of size n + 1, with the same normalisation and regularisation.

    Without ``normalize_trace``, Σ is the covariance itself, with the number of samples minus one as its divisor (the
    number of samples with ``embed_mean``), and shrinkage is towards :math:`\mathrm{tr}(Σ) I / n`.  The compiled kernel
    is not used.

    Parameters
    ----------
    n_segments : int
        Number of windows m in each branch.
    eps : float
        Multiple ε of the identity that is added to the trace-one matrix.
    shrinkage : float in [0, 1), "samples", "oas" or "learnt"
        ρ: a number; "samples", :math:`n / (n + L)` for matrices of size n and windows of L samples, as if n samples of
        white noise were added to each window; "oas", the estimate for independent Gaussian samples [1]_ in the form for
        large n, as in scikit-learn; or "learnt", a trained parameter common to all windows.
    embed_mean : bool
        Whether to embed mean and covariance of a window; the size of the matrices is then n + 1.
    normalize_trace : bool
        Whether covariances are divided by their trace.

    References
    ----------
    .. [1] Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance estimation", IEEE
       Trans. Signal Process. 58(10), 2010.
    .. [2] M. Lovrić, M. Min-Oo, E. A. Ruh, "Multivariate normal distributions parametrized as a Riemannian symmetric
       space", J. Multivariate Anal. 74(1), 2000.

    Examples
    --------
    >>> SegmentCovariance(n_segments=3)(torch.randn(2, 1, 4, 60)).shape
    torch.Size([2, 3, 4, 4])
    >>> SegmentCovariance(n_segments=3, embed_mean=True)(torch.randn(2, 1, 4, 60)).shape
    torch.Size([2, 3, 5, 5])
    """

    undecayed = ("shrinkage_logit",)

    def __init__(
        self,
        n_segments: int,
        eps: float = 1e-5,
        shrinkage: Shrinkage = 0.0,
        embed_mean: bool = False,
        normalize_trace: bool = True,
    ) -> None:
        super().__init__()
        check_at_least("n_segments", n_segments, 1)
        if not (math.isfinite(eps) and eps >= 0):
            raise ParameterError(f"eps={eps} must be a finite number of at least 0.")
        if isinstance(shrinkage, str):
            check_one_of("shrinkage", shrinkage, ("samples", "oas", "learnt"))
        elif not 0 <= shrinkage < 1:
            raise ParameterError(f"shrinkage={shrinkage} must be in [0, 1), 'samples', 'oas' or 'learnt'.")
        self.n_segments, self.eps, self.shrinkage, self.embed_mean = n_segments, eps, shrinkage, embed_mean
        self.normalize_trace = normalize_trace
        if shrinkage == "learnt":
            self.shrinkage_logit = nn.Parameter(torch.tensor(math.log(START / (1 - START))))

    def extra_repr(self) -> str:
        """Describe the options for repr."""
        sizes = f"n_segments={self.n_segments}, eps={self.eps:g}, shrinkage={self.shrinkage!r}"
        return f"{sizes}, embed_mean={self.embed_mean}, normalize_trace={self.normalize_trace}"

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Compute covariances.

        Parameters
        ----------
        x : Tensor, shape (batch, branches, n, times)
            Features.

        Returns
        -------
        Tensor, shape (batch, branches * m, n, n)
            n + 1 instead of n with ``embed_mean``.
        """
        check_same_kind(x=x)
        if x.ndim != 4 or x.shape[2] == 0:
            raise ShapeError(
                f"'x' {tuple(x.shape)} must be features (batch, branches, n, times); use x[:, None] for one branch."
            )
        length, longer = divmod(x.shape[-1], self.n_segments)
        if length < 2:
            raise ShapeError(
                f"{x.shape[-1]} samples give {self.n_segments} windows of {length}, but a covariance needs at least 2 "
                "samples: use fewer windows (n_segments) or longer epochs."
            )
        if not self.normalize_trace:
            cov = torch.cat([_covariance(part, self.embed_mean) for part in self._windows(x)], dim=2).flatten(1, 2)
            size = cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
            rho = self._rho(cov / size.clamp_min(_tiny(cov)), length, longer)
            return self._shrink(cov, rho, size)
        if self.shrinkage in ("oas", "learnt"):
            cov = self._trace_one(x)
            return self._shrink(cov, self._rho(cov, length, longer))
        n = x.shape[2] + self.embed_mean
        rho = self._fixed_rho(n, x.shape[-1])
        if _native.supports(x):
            return apply(_Windows, x, self.n_segments, 1 - rho, rho / n + self.eps, self.embed_mean)
        return self._shrink(self._trace_one(x), rho)

    def _shrink(self, cov: Tensor, rho: Tensor | float, trace: Tensor | float = 1.0) -> Tensor:
        """``(1 - ρ) Σ + (ρ tr Σ / n + ε) I``."""
        n = cov.shape[-1]
        eye = torch.eye(n, dtype=cov.dtype, device=cov.device)
        return (1 - rho) * cov + (rho * trace / n + self.eps) * eye

    def _trace_one(self, x: Tensor) -> Tensor:
        """Covariances of trace one, (batch, branches, n, times) -> (batch, branches * m, n, n)."""
        if _native.supports(x):
            return apply(_Windows, x, self.n_segments, 1.0, 0.0, self.embed_mean)
        return torch.cat([_trace_one(part, self.embed_mean) for part in self._windows(x)], dim=2).flatten(1, 2)

    def _windows(self, x: Tensor) -> list[Tensor]:
        """Windows (batch, branches, windows, n, length): the longer ones, if any, and the others."""
        length, longer = divmod(x.shape[-1], self.n_segments)
        cut = longer * (length + 1)
        parts = [x[..., cut:].unflatten(-1, (-1, length))]
        if longer:
            parts.insert(0, x[..., :cut].unflatten(-1, (longer, length + 1)))
        return [part.transpose(-3, -2) for part in parts]

    def _fixed_rho(self, n: int, times: int) -> float:
        """ρ as given, or "samples" for matrices of size n and windows of an epoch of ``times`` samples."""
        return self.shrinkage if isinstance(self.shrinkage, float | int) else n / (n + times / self.n_segments)

    def _rho(self, cov: Tensor, length: int, longer: int) -> Tensor | float:
        """Fixed or trained ρ, or its estimate for each window, of which the first ``longer`` are one sample longer."""
        n = cov.shape[-1]
        if self.shrinkage == "learnt":
            return self.shrinkage_logit.sigmoid()
        if self.shrinkage != "oas":
            return self._fixed_rho(n, self.n_segments * length + longer)
        square = cov.square().sum((-2, -1), keepdim=True)  # tr Σ², for trace one
        above = (square - 1 / n).clamp_min(_tiny(cov))
        window = torch.arange(cov.shape[1], device=cov.device) % self.n_segments
        samples = length + (window < longer)[:, None, None].to(cov.dtype)
        return ((square + 1) / ((samples + 1) * above)).clamp_max(1)


def _trace_one(x: Tensor, embed_mean: bool) -> Tensor:
    """Products of rows of windows, centred or with an additional row of ones, divided by their traces."""
    multiply = _product if embed_mean else centred_product
    if embed_mean:
        x = torch.cat([x, torch.ones_like(x[..., :1, :])], dim=-2)
    product = multiply(x)
    if torch.compiler.is_compiling() or not _in_range(product.detach()):
        # scale to unit amplitude first: squares may overflow or underflow in float32
        product = multiply(x / x.detach().abs().amax((-2, -1), keepdim=True).clamp_min(_tiny(x)))
    trace = product.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    return product / trace.clamp_min(_tiny(x))  # 0 for a constant window, and eps I after regularisation


def _product(x: Tensor) -> Tensor:
    """Products of rows, (..., n, samples) -> (..., n, n)."""
    return sym(x @ x.mT)


def _covariance(x: Tensor, embed_mean: bool) -> Tensor:
    """Covariances of windows (..., n, samples), or their second moments with an additional row of ones."""
    if embed_mean:
        return _product(torch.cat([x, torch.ones_like(x[..., :1, :])], dim=-2)) / x.shape[-1]
    return centred_product(x) / (x.shape[-1] - 1)


class TokenMoments(nn.Module):
    r"""Second moments of tokens with their mean, (batch, channels, segments, width) -> (batch, m, n, n).

    n is channels + 1.  The features of a token are divided into m groups of consecutive features.  Every feature of
    every segment in a group is one sample :math:`x` of the channels.  The samples are divided by their root mean
    square, and a one is appended.  Their second moment is

    .. math:: \frac{1}{n} \begin{pmatrix} Σ + μ μ^⊤ & μ \\ μ^⊤ & 1 \end{pmatrix},

    a matrix P of trace one that contains mean and covariance of the group and is positive definite if Σ is.  It is
    regularised to :math:`(1 - ρ) P + ρ I / n + ε I`.

    Parameters
    ----------
    n_groups : int
        Number m of groups, a divisor of the width.
    eps : float
        Multiple ε of the identity that is added.
    shrinkage : float in [0, 1)
        Shrinkage ρ.
    """

    def __init__(self, n_groups: int, eps: float = 1e-5, shrinkage: float = 0.0) -> None:
        super().__init__()
        check_at_least("n_groups", n_groups, 1)
        if not 0 <= shrinkage < 1:
            raise ParameterError(f"shrinkage={shrinkage} must be in [0, 1).")
        if not 0 <= eps < 1:
            raise ParameterError(f"eps={eps} must be in [0, 1).")
        self.n_groups, self.eps, self.shrinkage = n_groups, eps, shrinkage

    def extra_repr(self) -> str:
        """Describe the options for repr."""
        return f"n_groups={self.n_groups}, eps={self.eps:g}, shrinkage={self.shrinkage:g}"

    @full_precision
    def forward(self, tokens: Tensor) -> Tensor:
        """Moments of tokens (batch, channels, segments, width)."""
        check_same_kind(tokens=tokens)
        if tokens.ndim != 4 or tokens.shape[-1] % self.n_groups:
            raise ShapeError(
                f"'tokens' {tuple(tokens.shape)} must be (batch, channels, segments, width) with a width that "
                f"n_groups={self.n_groups} divides."
            )
        x = (
            tokens.unflatten(-1, (self.n_groups, -1)).permute(0, 3, 1, 2, 4).flatten(-2)
        )  # (batch, m, channels, samples)
        size = x.square().mean((-2, -1), keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        x = torch.cat([x * size.rsqrt(), torch.ones_like(x[..., :1, :])], dim=-2)
        n, samples = x.shape[-2:]
        eye = torch.eye(n, dtype=x.dtype, device=x.device)
        lift = self.shrinkage / n + self.eps
        return (1 - self.shrinkage) / (n * samples) * sym(x @ x.mT) + lift * eye

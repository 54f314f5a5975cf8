"""Sequences of SPD matrices from the tokens of a backbone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry._autograd import full_precision
from gbwatt.geometry.symmetry import sym


class TokenMoments(nn.Module):
    r"""Second moments of tokens with their mean, (batch, channels, segments, width) -> (batch, m, n, n).

    n is channels + 1.  The features of a token are divided into m groups of neighbours.  Every feature of every segment
    in a group is a sample :math:`x` of the channels; divided by their root mean square and with a one appended, its
    second moment is

    .. math:: \frac{1}{n} \begin{pmatrix} Σ + μ μ^⊤ & μ \\ μ^⊤ & 1 \end{pmatrix},

    a matrix of trace one that holds mean and covariance of the group and is positive definite where Σ is.  It is shrunk
    to :math:`(1 - ρ) P + ρ I / n` and lifted by :math:`ε I`.

    Parameters
    ----------
    n_groups : int
        m, a divisor of the width.
    eps : float
        Added to the diagonal.
    shrinkage : float in [0, 1)
        ρ.
    """

    def __init__(self, n_groups: int, eps: float = 1e-5, shrinkage: float = 0.0) -> None:
        super().__init__()
        checks.at_least("n_groups", n_groups, 1)
        if not 0 <= shrinkage < 1:
            raise checks.ParameterError(f"shrinkage={shrinkage} must be in [0, 1).")
        if not 0 <= eps < 1:
            raise checks.ParameterError(f"eps={eps} must be in [0, 1).")
        self.n_groups, self.eps, self.shrinkage = n_groups, eps, shrinkage

    def extra_repr(self) -> str:
        """What repr shows."""
        return f"n_groups={self.n_groups}, eps={self.eps:g}, shrinkage={self.shrinkage:g}"

    @full_precision
    def forward(self, tokens: Tensor) -> Tensor:
        """Moments of tokens (batch, channels, segments, width)."""
        checks.same_kind(tokens=tokens)
        if tokens.ndim != 4 or tokens.shape[-1] % self.n_groups:
            raise checks.ShapeError(
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

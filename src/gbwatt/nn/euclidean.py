"""Attention without a manifold, for comparison: what SSAM is worth (Table 3 of the paper)."""

from __future__ import annotations

from torch import Tensor, nn

from gbwatt import checks
from gbwatt.nn.attention import Attended


class Segments(nn.Module):
    """Consecutive windows of equal length as vectors, (batch, branches, n, times) -> (batch, branches * m, n * length).

    Samples beyond the last whole window are left out.
    """

    def __init__(self, n_segments: int) -> None:
        super().__init__()
        checks.at_least("n_segments", n_segments, 1)
        self.n_segments = n_segments

    def forward(self, x: Tensor) -> Tensor:
        """Cut features (batch, branches, n, times)."""
        checks.same_kind(x=x)
        if x.ndim != 4 or x.shape[-1] < self.n_segments:
            raise checks.ShapeError(
                f"'x' {tuple(x.shape)} does not hold features (batch, branches, n, times) of {self.n_segments} samples "
                "or more, one for each window."
            )
        length = x.shape[-1] // self.n_segments
        windows = x[..., : length * self.n_segments].unflatten(-1, (self.n_segments, length))
        out: Tensor = windows.transpose(-3, -2).flatten(-2).flatten(1, 2)
        return out


class EuclideanSelfAttention(nn.Module):
    r"""Scaled dot-product attention, (batch, m, size) -> (batch, m, width).

    :math:`\mathrm{softmax}(Q K^⊤ / \sqrt{d}) V`, queries, keys and values linear in the input.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, width, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Attended:
        """Attend to sequences (batch, m, size)."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
        return Attended(weights @ v, weights)


class NoAttention(nn.Module):
    """Everything as it is; there are no weights to speak of."""

    def forward(self, x: Tensor) -> Attended:
        """The input, and weights of no element."""
        return Attended(x, x.new_empty(x.shape[0], 0, 0))

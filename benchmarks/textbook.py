"""GBWAtt as one writes it from the paper, and the convolutions that any such network has to pay for.

:class:`Textbook` and :class:`Loop` have the parameters of :class:`gbwatt.models.GBWAtt` under the same names, so that
weights can be copied, and compute the same function up to rounding and to the five steps of their means. Gradients are
those of autograd. Where the paper leaves a choice they take the kind one: M enters by its Cholesky factor, because the
gradient of an eigendecomposition is NaN at M = I; eigenvalues stay above rounding level; nothing is decomposed twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gbwatt.models import GBWAtt
from gbwatt.models.presets import Task

STEPS = 5  # of a mean


# --------------------------------------------------------------------------------------------------- mathematics


def power(x: Tensor, p: float) -> Tensor:
    """``X^p``, (..., k, k)."""
    values, vectors = torch.linalg.eigh(x)
    floor = torch.finfo(x.dtype).eps * values[..., -1:].detach()
    return (vectors * values.maximum(floor).pow(p)[..., None, :]) @ vectors.mT


def roots(x: Tensor) -> tuple[Tensor, Tensor]:
    """``X^½`` and ``X^-½``, (..., k, k)."""
    values, vectors = torch.linalg.eigh(x)
    values = values.maximum(torch.finfo(x.dtype).eps * values[..., -1:].detach()).sqrt()[..., None, :]
    return (vectors * values) @ vectors.mT, (vectors / values) @ vectors.mT


def rectified_log(x: Tensor, eps: float) -> Tensor:
    """``log max(X, eps)``, (..., k, k)."""
    values, vectors = torch.linalg.eigh(x)
    return (vectors * values.clamp_min(eps).log()[..., None, :]) @ vectors.mT


def covariance(x: Tensor, eps: float) -> Tensor:
    """Trace-one covariances of windows, (..., n, times) -> (..., n, n), plus ``eps I``."""
    x = x - x.mean(-1, keepdim=True)
    c = x @ x.mT / (x.shape[-1] - 1)
    return c / trace(c)[..., None, None] + eps * torch.eye(x.shape[-2], dtype=x.dtype)


def deform(x: Tensor, low: Tensor, theta: float) -> Tensor:
    """``C⁻¹ X^θ C⁻ᵀ``, where ``M = C Cᵀ``: from θ-GBW to BW."""
    inverse = torch.linalg.inv(low)
    return inverse @ power(x, theta) @ inverse.mT


def undeform(x: Tensor, low: Tensor, theta: float) -> Tensor:
    """``(C X Cᵀ)^(1/θ)``: back."""
    return power(low @ x @ low.mT, 1 / theta)


def distance(x: Tensor, root: Tensor, y: Tensor) -> Tensor:
    """``(tr X + tr Y - 2 tr (X^½ Y X^½)^½)^½``, broadcasting; ``root`` is ``X^½``."""
    eps = torch.finfo(x.dtype).eps
    cross = torch.linalg.eigvalsh(root @ y @ root).clamp_min(eps**2).sqrt().sum(-1)
    return (trace(x) + trace(y) - 2 * cross).clamp_min(eps).sqrt()


def mean(points: Tensor, weights: Tensor) -> Tensor:
    """Weighted means, (..., m, k, k), (..., m) -> (..., k, k), by steps of the fixed point, unrolled."""
    w = weights[..., None, None]
    g = (w * points).sum(-3)
    for _ in range(STEPS):
        root, inverse = roots(g)
        inner = power(root[..., None, :, :] @ points @ root[..., None, :, :], 0.5)
        g = moved(inverse, (w * inner).sum(-3))
    return g


def mean_of_list(points: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """The same for one mean, a matrix at a time."""
    g = added(points, weights)
    for _ in range(STEPS):
        root, inverse = roots(g)
        g = moved(inverse, added([power(root @ x @ root, 0.5) for x in points], weights))
    return g


def added(points: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """``Σ w X``."""
    return torch.stack([w * x for w, x in zip(weights, points, strict=True)]).sum(0)


def moved(inverse: Tensor, image: Tensor) -> Tensor:
    """``G^-½ S² G^-½``, symmetrised."""
    g = inverse @ image @ image @ inverse
    return (g + g.mT) / 2


def trace(x: Tensor) -> Tensor:
    """``tr X``, (..., k, k) -> (...)."""
    return x.diagonal(dim1=-2, dim2=-1).sum(-1)


def upper(x: Tensor) -> Tensor:
    """The upper triangle, (..., k, k) -> (..., k (k + 1) / 2)."""
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1])
    return x[..., i, j]


# ------------------------------------------------------------------------------------------------------ networks


class Textbook(GBWAtt):
    """GBWAtt (isometric, fixed θ, no shrinkage) in batches of matrices."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits of epochs (batch, n_chans, n_times)."""
        x = self.sequence(self.filtered(x))
        return self.final_layer(self.vectors(self.attended(x)))

    def filtered(self, x: Tensor) -> Tensor:
        """The convolutions one after the other, (batch, n_chans, n_times) -> (batch, branches, n, times)."""
        own = self.features
        x = own.temporal_norm(own.temporal(own.spatial_norm(own.spatial(x))))
        return x.unflatten(1, (own.branches, -1))

    def windows(self, x: Tensor) -> tuple[Tensor, ...]:
        """Windows in time, (..., times) -> m of (..., length); the first may be one sample longer."""
        return torch.tensor_split(x, self.covariances.n_segments, dim=-1)

    def factor(self) -> Tensor:
        """C of ``M = C Cᵀ``."""
        return torch.linalg.cholesky(self.attention.metric.M)

    def sequence(self, x: Tensor) -> Tensor:
        """(batch, branches, n, times) -> (batch, m, n, n)."""
        parts = [covariance(part, self.covariances.eps) for part in self.windows(x)]
        return torch.stack(parts, 2).flatten(1, 2)

    def attended(self, x: Tensor) -> Tensor:
        """(batch, m, n, n) -> (batch, m, k, k)."""
        own, theta, low = self.attention, self.config["theta"], self.factor()
        q, k, v = (deform(w.mT @ x @ w, low, theta) for w in (own.query.weight, own.key.weight, own.value.weight))
        root = power(q, 0.5)
        d = distance(q[:, :, None], root[:, :, None], k[:, None]) / theta
        weights = (1 / (1 + d.log1p())).softmax(-1)
        return undeform(mean(v[:, None], weights), low, theta)

    def vectors(self, x: Tensor) -> Tensor:
        """(batch, m, k, k) -> (batch, m k (k + 1) / 2)."""
        return upper(rectified_log(x, self.embedding.eps)).flatten(1)


class Loop(Textbook):
    """The same with one matrix at a time; the convolutions are applied to the whole batch."""

    def sequence(self, x: Tensor) -> Tensor:
        """(batch, branches, n, times) -> (batch, m, n, n)."""
        eps = self.covariances.eps
        trials = [[covariance(part, eps) for branch in trial for part in self.windows(branch)] for trial in x]
        return torch.stack([torch.stack(trial) for trial in trials])

    def attended(self, x: Tensor) -> Tensor:
        """(batch, m, n, n) -> (batch, m, k, k)."""
        return torch.stack([self.attended_trial(trial) for trial in x])

    def attended_trial(self, x: Tensor) -> Tensor:
        """(m, n, n) -> (m, k, k)."""
        own, theta, low = self.attention, self.config["theta"], self.factor()
        maps = (own.query.weight, own.key.weight, own.value.weight)
        q, k, v = ([deform(w.mT @ one @ w, low, theta) for one in x] for w in maps)
        roots = [power(one, 0.5) for one in q]
        seen = []
        for query, root in zip(q, roots, strict=True):
            d = torch.stack([distance(query, root, key) for key in k]) / theta
            weights = (1 / (1 + d.log1p())).softmax(-1)
            seen.append(undeform(mean_of_list(v, list(weights)), low, theta))
        return torch.stack(seen)

    def vectors(self, x: Tensor) -> Tensor:
        """(batch, m, k, k) -> (batch, m k (k + 1) / 2)."""
        eps = self.embedding.eps
        return torch.stack([torch.cat([upper(rectified_log(one, eps)) for one in trial]) for trial in x])


class Floor(nn.Sequential):
    """The convolutions of a preset with their batch norms and nothing else: plain modules of torch.

    As EEG networks write them, over images of channels and times; or ``flat``, the same over times alone.
    """

    def __init__(self, task: Task, flat: bool = False) -> None:
        own, groups = task.architecture, 1 if task.architecture.split == "time" else task.architecture.n_segments
        spatial, temporal, padding = groups * own.n_spatial, groups * own.n_temporal, own.kernel // 2
        if flat:
            super().__init__(
                nn.Conv1d(task.signal.n_chans, spatial, 1),
                nn.BatchNorm1d(spatial),
                nn.Conv1d(spatial, temporal, own.kernel, padding=padding, groups=groups),
                nn.BatchNorm1d(temporal),
            )
        else:
            super().__init__(
                nn.Unflatten(1, (1, task.signal.n_chans)),
                nn.Conv2d(1, spatial, (task.signal.n_chans, 1)),
                nn.BatchNorm2d(spatial),
                nn.Conv2d(spatial, temporal, (1, own.kernel), padding=(0, padding), groups=groups),
                nn.BatchNorm2d(temporal),
            )

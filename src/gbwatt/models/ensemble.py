"""Ensembles of networks, whose probabilities are averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gbwatt.errors import ParameterError


class Ensemble(nn.Module):
    r"""Mean probabilities of several networks, as logits: :math:`\log \frac{1}{M} \sum_i \mathrm{softmax}(z_i)`.

    (batch, n_chans, n_times) -> (batch, n_outputs).  Networks that were trained with different random seeds make
    different errors, so their mean is more accurate than a single network on average.

    Parameters
    ----------
    members : sequence of nn.Module
        Networks of the same kind, with logits as their output.

    Examples
    --------
    >>> members = [nn.Linear(3, 2) for _ in range(5)]
    >>> x = torch.randn(4, 3)
    >>> mean = torch.stack([member(x).softmax(-1) for member in members]).mean(0)
    >>> torch.allclose(Ensemble(members)(x).softmax(-1), mean)
    True
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if not members:
            raise ParameterError("members: an ensemble needs at least one network.")
        self.members = nn.ModuleList(members)

    @property
    def config(self) -> dict[str, Any] | None:
        """Arguments of :func:`~gbwatt.models.create` that build the same ensemble; None if a member has none."""
        config = getattr(self.members[0], "config", None)
        return None if config is None else {**config, "n_members": len(self.members)}

    def adapt(self, x: Tensor, domain: Tensor | None = None) -> None:
        """Estimate the statistics of domains in every network; see :meth:`gbwatt.models.GBWAtt.adapt`."""
        for member in self.members:
            member.adapt(x, domain)  # type: ignore[operator]

    def forward(self, x: Tensor, *domain: Tensor) -> Tensor:
        """Classify epochs, perhaps with their domains, by the mean probabilities of all networks."""
        logits = torch.stack([member(x, *domain).log_softmax(-1) for member in self.members])
        return logits.logsumexp(0) - math.log(len(self.members))

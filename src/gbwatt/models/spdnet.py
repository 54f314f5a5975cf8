"""SPDNet and SPDNetBN: networks of one covariance without attention."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from gbwatt.geometry._context import full_precision
from gbwatt.models.presets import Task, architecture_for
from gbwatt.models.registry import register
from gbwatt.models.signal import Signal, as_epochs
from gbwatt.nn import BiMap, Embedding, SegmentCovariance, SPDBatchNorm
from gbwatt.nn.covariance import Shrinkage
from gbwatt.nn.features import SpatioTemporalFeatures


class SPDNet(nn.Module):
    """SPDNet [1]_: one covariance, a bilinear map and a logarithm, (batch, n_chans, n_times) -> (batch, n_outputs).

    The filters before it are those of :class:`~gbwatt.models.GBWAtt`, so that comparisons concern the later layers.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float, optional
        Sampling rate in Hz.
    n_spatial, n_temporal, kernel, k : int, optional
        Filters, and size after the bilinear map; by default, they follow from the input
        (:func:`~gbwatt.models.presets.architecture_for`).
    batchnorm : bool
        Whether Riemannian batch normalisation follows the map [2]_, with the converged mean of the batch
        (:class:`~gbwatt.nn.SPDBatchNorm`); the original takes one step towards it.
    momentum : float
        Momentum of the batch normalisation.
    eps, shrinkage
        Regularisation of the covariance (:class:`~gbwatt.nn.SegmentCovariance`).
    reeig : float
        Threshold of the eigenvalue rectification.

    References
    ----------
    .. [1] Z. Huang, L. Van Gool, "A Riemannian network for SPD matrix learning", AAAI 2017.
    .. [2] D. Brooks et al., "Riemannian batch normalization for SPD neural networks", NeurIPS 2019.

    Examples
    --------
    >>> import torch
    >>> SPDNet(n_chans=8, n_outputs=5, n_times=125)(torch.randn(4, 8, 125)).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        n_chans: int,
        n_outputs: int,
        n_times: int,
        *,
        sfreq: float | None = None,
        n_spatial: int | None = None,
        n_temporal: int | None = None,
        kernel: int | None = None,
        k: int | None = None,
        batchnorm: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
        shrinkage: Shrinkage = 0.0,
        reeig: float = 1e-4,
    ) -> None:
        super().__init__()
        signal = Signal.infer(n_chans, n_outputs, n_times, sfreq)
        rule = architecture_for(signal)
        n_spatial, n_temporal = n_spatial or rule.n_spatial, n_temporal or rule.n_temporal
        kernel, k = kernel or rule.kernel, k or min(rule.k, n_temporal)
        self.config: dict[str, Any] = {
            **asdict(signal),
            "n_spatial": n_spatial,
            "n_temporal": n_temporal,
            "kernel": kernel,
            "k": k,
            "batchnorm": batchnorm,
            "momentum": momentum,
            "eps": eps,
            "shrinkage": shrinkage,
            "reeig": reeig,
        }
        self.features = SpatioTemporalFeatures(n_chans, n_spatial, n_temporal, kernel)
        self.covariance = SegmentCovariance(1, eps, shrinkage)
        self.bimap = BiMap(n_temporal, k)
        self.norm = SPDBatchNorm(k, momentum) if batchnorm else nn.Identity()
        self.embedding = Embedding(eps=reeig)
        self.final_layer = nn.Linear(k * (k + 1) // 2, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of epochs (batch, n_chans, n_times), or (batch, 1, n_chans, n_times)."""
        x = self.features(as_epochs(x, self.config["n_chans"], self.config["n_times"], self))
        return self._classify(self.norm(self.bimap(self.covariance(x))))

    @full_precision
    def _classify(self, x: Tensor) -> Tensor:
        """Logits of matrices (batch, 1, k, k), never in half precision."""
        logits: Tensor = self.final_layer(self.embedding(x))
        return logits


@register("spdnet", "one covariance and its logarithm (Huang and Van Gool 2017)")
def _spdnet(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    """Build SPDNet for the registry, with the filters of a task if one is given."""
    sizes = {} if task is None else asdict(task.architecture_for("time"))
    filters = {name: value for name, value in sizes.items() if name not in ("split", "n_segments")}
    return SPDNet(**{**asdict(signal), **filters, **options})


@register(
    "spdnetbn",
    "SPDNet with Riemannian batch normalisation (Brooks et al. 2019; with the converged mean, where the authors take "
    "one Karcher step)",
)
def _spdnetbn(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    """Build SPDNet with batch normalisation for the registry."""
    return _spdnet(signal, task, **{"batchnorm": True, **options})

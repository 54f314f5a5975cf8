"""Networks of other authors on manifolds: SPDNet and SPDNetBN (SPD matrices) and GDLNet (subspaces)."""

from __future__ import annotations

from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor, nn

from gbwatt._validation import check_one_of, check_same_kind
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.geometry._context import full_precision
from gbwatt.geometry.grassmann import leading_subspace, orthonormalise, projection_distance
from gbwatt.geometry.symmetric import sym
from gbwatt.models.presets import Architecture, Split, Task, Training, architecture_for
from gbwatt.models.registry import register
from gbwatt.models.signal import Signal, as_epochs
from gbwatt.nn.attention import Attended
from gbwatt.nn.covariance import SegmentCovariance, Shrinkage
from gbwatt.nn.features import ActivatedFeatures, SpatioTemporalFeatures
from gbwatt.nn.optim import stiefel
from gbwatt.nn.spd_layers import BiMap, Embedding, SPDBatchNorm


def _filter_sizes(signal: Signal, n_spatial: int | None, n_temporal: int | None, kernel: int | None) -> dict[str, int]:
    """Numbers of spatial and temporal filters and length of the latter; those that are None follow from the input."""
    rule = architecture_for(signal)
    return {
        "n_spatial": n_spatial or rule.n_spatial,
        "n_temporal": n_temporal or rule.n_temporal,
        "kernel": kernel or rule.kernel,
    }


# --------------------------------------------------------------------------------------------------------------- SPDNet


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
        sizes = _filter_sizes(signal, n_spatial, n_temporal, kernel)
        k = k or min(architecture_for(signal).k, sizes["n_temporal"])
        self.config: dict[str, Any] = {
            **asdict(signal),
            **sizes,
            "k": k,
            "batchnorm": batchnorm,
            "momentum": momentum,
            "eps": eps,
            "shrinkage": shrinkage,
            "reeig": reeig,
        }
        self.features = SpatioTemporalFeatures(n_chans, **sizes, branches=1, shared=False)
        self.covariance = SegmentCovariance(1, eps, shrinkage)
        self.bimap = BiMap(sizes["n_temporal"], k)
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


# --------------------------------------------------------------------------------------------------------------- GDLNet

#: Filters for the tasks of the paper; k is the size after the full-rank map.  Those for SSVEP and ERN are from GDLNet's
#: authors: three groups of temporal filters after common spatial filters.  For MI they published none; here the filters
#: of GBWAtt are used in three groups, and the map removes two dimensions, as for the other tasks.
ARCHITECTURES = MappingProxyType(
    {
        "mi": Architecture(22, 20, 12, "shared", 3, 18),
        "ssvep": Architecture(125, 21, 64, "shared", 3, 19),
        "ern": Architecture(14, 16, 64, "shared", 3, 14),
    }
)

Variant = Literal["original", "linear"]

#: Learning rate, batch size, epochs and weight decay of the released code.  The optimiser differs: that code uses RAdam
#: with gradients clipped element-wise to ±10, gbwatt uses Riemannian Adam without clipping.
TRAINING = MappingProxyType({"ssvep": Training(5e-3, 64, 150, 5e-2), "ern": Training(4e-2, 30, 130, 1e-2)})


class FullRankMap(nn.Module):
    r"""Map of subspaces by a full-rank matrix, :math:`U ↦ \mathrm{qf}(W^⊤ U)`, (..., n, p) -> (..., n_out, p) [1]_.

    W (n, n_out) has orthonormal columns and therefore full rank; qf is the orthonormal factor of the QR decomposition.

    References
    ----------
    .. [1] Z. Huang, J. Wu, L. Van Gool, "Building deep networks on Grassmann manifolds", AAAI 2018.
    """

    def __init__(self, n: int, n_out: int) -> None:
        super().__init__()
        self.weight = stiefel(n, n_out)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map orthonormal bases (..., n, p)."""
        check_same_kind(weight=self.weight, x=x)
        if x.ndim < 2 or x.shape[-2] != len(self.weight):
            raise ShapeError(f"'x' {tuple(x.shape)} does not hold bases (..., {len(self.weight)}, p).")
        return orthonormalise(self.weight.mT @ x)


class GrassmannSelfAttention(nn.Module):
    r"""Self-attention of a sequence of subspaces, (batch, m, n, p) -> (batch, m, n_out, n_out).

    Queries, keys and values are computed by :class:`FullRankMap`.  The score of a query and a key at projection
    distance d is :math:`1 / (1 + \log(1 + d))`.  The result for a query is the mean projector
    :math:`\sum_j a_j V_j V_j^⊤`, where a is the softmax of its scores; its leading subspace is the mean subspace.
    """

    def __init__(self, n: int, n_out: int) -> None:
        super().__init__()
        self.query, self.key, self.value = FullRankMap(n, n_out), FullRankMap(n, n_out), FullRankMap(n, n_out)

    @full_precision
    def forward(self, x: Tensor) -> Attended:
        """Attend to bases (batch, m, n, p)."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        distance = projection_distance(q[..., :, None, :, :], k[..., None, :, :, :])  # (batch, m, m)
        weights = (1 / (1 + distance.log1p())).softmax(-1)
        projectors = sym(v @ v.mT)
        return Attended((weights @ projectors.flatten(-2)).unflatten(-1, projectors.shape[-2:]), weights)


class GDLNet(nn.Module):
    """Self-attention of the leading subspaces of covariances [1]_, (batch, n_chans, n_times) -> (batch, n_outputs).

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float, optional
        Sampling rate in Hz; determines the default of ``kernel``.
    n_spatial, n_temporal, kernel, split, n_segments : optional
        Filters, and source of the sequence (:class:`~gbwatt.models.presets.Architecture`); by default three groups of
        temporal filters after common spatial filters, with sizes that follow from the input
        (:func:`~gbwatt.models.presets.architecture_for`).
    n_out : int, optional
        Dimension after the full-rank map; by default ``n_temporal - 2``.
    p : int, optional
        Dimension of the subspaces, below ``n_out``; by default half of it.  This hyper-parameter should be selected on
        validation data; the released code has a value for each subject, 7 to 11 for SSVEP and 3 to 8 for ERN.
    variant : {"original", "linear"}
        "original" is the authors' network: an exponential linear unit after each batch normalisation, temporal filters
        without padding, and all entries of the mean projectors in the final layer.  It has their number of parameters,
        512 181 for SSVEP and 45 828 for ERN.  "linear" is the network of gbwatt before this option existed: the linear,
        padded filters of :class:`~gbwatt.nn.SpatioTemporalFeatures`, and the upper triangle of each symmetric matrix in
        the final layer.  Configurations and results without ``variant`` refer to "linear".

    Notes
    -----
    The covariances need no regularisation: adding a multiple of the identity, or shrinkage towards one, does not change
    the leading subspace.

    With the same weights the original variant and the released code have the same logits and gradients.  Their training
    differs.  Here the full-rank maps are points on the Stiefel manifold, trained with Riemannian Adam.  In the released
    code they are unconstrained, orthonormalised in each forward pass, and trained with RAdam and clipped gradients.

    References
    ----------
    .. [1] R. Wang, C. Hu, Z. Chen, X.-J. Wu, X. Song, "A Grassmannian manifold self-attention network for signal
       classification", IJCAI 2024.

    Examples
    --------
    >>> import torch
    >>> model = GDLNet(n_chans=8, n_outputs=5, n_times=125)
    >>> model(torch.randn(4, 8, 125)).shape
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
        split: Split = "shared",
        n_segments: int = 3,
        n_out: int | None = None,
        p: int | None = None,
        variant: Variant = "original",
    ) -> None:
        super().__init__()
        check_one_of("split", split, ("time", "grouped", "shared"))
        check_one_of("variant", variant, ("original", "linear"))
        signal = Signal.infer(n_chans, n_outputs, n_times, sfreq)
        sizes = _filter_sizes(signal, n_spatial, n_temporal, kernel)
        n = sizes["n_temporal"]
        n_out, p = _check_dimensions(n, n_out, p)
        self.config: dict[str, Any] = {
            **asdict(signal),
            **sizes,
            "split": split,
            "n_segments": n_segments,
            "n_out": n_out,
            "p": p,
            "variant": variant,
        }
        self.p = p
        branches = 1 if split == "time" else n_segments
        shared = split == "shared"
        self.features: nn.Module
        self.embedding: nn.Module
        if variant == "original":
            _require_samples(n_times, sizes["kernel"])
            self.features = ActivatedFeatures(n_chans, **sizes, branches=branches, shared=shared)
            self.embedding, entries = nn.Flatten(), n_out**2
        else:
            self.features = SpatioTemporalFeatures(n_chans, **sizes, branches=branches, shared=shared)
            self.embedding, entries = Embedding(logarithm=False), n_out * (n_out + 1) // 2
        self.covariances = SegmentCovariance(n_segments // branches)
        self.attention = GrassmannSelfAttention(n, n_out)
        self.final_layer = nn.Linear(n_segments * entries, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of epochs (batch, n_chans, n_times), or (batch, 1, n_chans, n_times)."""
        x = as_epochs(x, self.config["n_chans"], self.config["n_times"], self)
        x = self.covariances(self.features(x))  # (batch, m, n, n)
        x = leading_subspace(x, self.p)  # (batch, m, n, p)
        return self._classify(self.attention(x).value)  # of (batch, m, n_out, n_out)

    @full_precision
    def _classify(self, x: Tensor) -> Tensor:
        """Logits of mean projectors (batch, m, n_out, n_out), never in half precision."""
        logits: Tensor = self.final_layer(self.embedding(x))
        return logits


def _check_dimensions(n: int, n_out: int | None, p: int | None) -> tuple[int, int]:
    """Return the dimension after the map and that of the subspaces, with defaults; require 1 ≤ p < n_out ≤ n."""
    if n < 2:
        raise ParameterError(f"n_temporal={n} must be at least 2: in one dimension all subspaces are the same.")
    n_out = max(2, n - 2) if n_out is None else n_out
    if not 2 <= n_out <= n:
        raise ParameterError(f"n_out={n_out} must be between 2 and n_temporal={n}.")
    p = n_out // 2 if p is None else p
    if not 1 <= p < n_out:
        raise ParameterError(
            f"p={p} must be between 1 and {n_out - 1}: in n_out={n_out} dimensions all larger subspaces are the same."
        )
    return n_out, p


def _require_samples(n_times: int, kernel: int) -> None:
    """Require at least two samples after filters without padding: a covariance needs two."""
    if n_times - kernel + 1 < 2:
        raise ParameterError(
            f"kernel={kernel} must be shorter than the epochs, n_times={n_times}: the filters of variant='original' do "
            "not pad. Use a shorter kernel, or variant='linear'."
        )


@register(
    "gdlnet",
    "self-attention of subspaces on the Grassmann manifold (Wang et al. 2024; trained with Riemannian Adam, where the "
    "authors use RAdam with clipped gradients)",
    training=TRAINING,
    added_options={"variant": ("linear", "original")},
)
def _gdlnet(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    """Build GDLNet for the registry, with the filters of a task if one is given."""
    sizes = {} if task is None else asdict(ARCHITECTURES[task.name])
    if sizes:
        sizes["n_out"] = sizes.pop("k")
    return GDLNet(**{**asdict(signal), **sizes, **options})

"""Backbones: pretrained networks that compute tokens, one vector per channel and time segment."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from gbwatt.data.montage import BIPOLAR, older_name, plain_name
from gbwatt.errors import ParameterError
from gbwatt.models.braindecode import braindecode_models

RATE = 200.0  # Hz, sampling rate of both backbones


class Backbone(nn.Module, ABC):
    """Abstract network from epochs in µV to tokens, (batch, n_chans, n_times) -> (batch, channels, segments, width).

    Subclasses group their parameters by depth, for layer-wise learning-rate decay.

    Attributes
    ----------
    final_scale : float or None
        Standard deviation of the initial weights of the classifier; None for the initialisation of torch.
    """

    final_scale: float | None = None

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Compute the tokens of epochs."""

    def pool(self, tokens: Tensor) -> Tensor:
        """Average the tokens of each epoch to one vector (batch, width), for the classifier."""
        return tokens.mean((1, 2))

    @abstractmethod
    def stages(self) -> list[list[nn.Parameter]]:
        """Return groups of parameters from input to output, for layer-wise learning-rate decay.

        Parameters in none of the groups have the learning rate of the head.
        """


class AnyBackbone(Backbone):
    """Any module that returns tokens; its parameters are one stage."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Compute the tokens of epochs."""
        tokens: Tensor = self.network(x)
        return tokens

    def stages(self) -> list[list[nn.Parameter]]:
        """Return all parameters as one group, so that they have the same learning rate."""
        return [list(self.network.parameters())]


class BIOT(Backbone):
    """Encoder of BIOT [1]_: spectra of one second, every half second, of 16 bipolar channels.

    Bipolar channels are computed from electrodes; each is divided by the 95th percentile of its magnitude.

    Parameters
    ----------
    ch_names : sequence of str
        Channels of the epochs: the pairs of :data:`gbwatt.data.montage.BIPOLAR`, or electrodes that include theirs.
    n_times : int
        Samples at 200 Hz, at least 200.
    **options
        Further arguments of braindecode's class.

    References
    ----------
    .. [1] C. Yang, M. B. Westover, J. Sun, "BIOT: Cross-data biosignal learning in the wild", NeurIPS 2023.
    """

    derivation: Tensor  # (16, n_chans)
    window: Tensor

    def __init__(self, ch_names: Sequence[str], n_times: int, **options: Any) -> None:
        super().__init__()
        if n_times < RATE:
            raise ParameterError(f"n_times={n_times}: BIOT computes spectra of 200 samples; longer epochs are needed.")
        self.register_buffer("derivation", derivation(ch_names), persistent=False)
        options = {"drop_prob": 0.1, **options}  # as its authors; the default of braindecode is 0.5
        network = _build_braindecode("BIOT", n_chans=len(BIPOLAR), n_times=n_times, **options)
        self.encoder: Any = network.encoder
        self.register_buffer("window", torch.ones(self.encoder.n_fft), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute tokens (batch, 16, segments, width)."""
        encoder, spectra = self.encoder, self._spectra(x)  # (batch, 16, frequencies, segments)
        embedded = encoder.patch_embedding(spectra.flatten(0, 1)).unflatten(0, spectra.shape[:2])
        placed = embedded + encoder.channel_tokens.weight[: spectra.shape[1], None]
        placed = encoder.positional_encoding(placed.flatten(0, 1)).view_as(placed)
        tokens: Tensor = encoder.transformer(placed.flatten(1, 2)).view_as(placed)
        return tokens

    def _spectra(self, x: Tensor) -> Tensor:
        """Return magnitudes of short-time Fourier transforms of scaled channels, never in half precision."""
        with torch.autocast(x.device.type, enabled=False):
            x = self.derivation @ x
            x = x / (x.detach().abs().quantile(0.95, dim=-1, keepdim=True) + 1e-8)
            settings: dict[str, Any] = {"window": self.window, "center": False, "return_complex": True}
            transform = torch.stft(x.flatten(0, 1), self.encoder.n_fft, self.encoder.hop_length, **settings)
            spectra: Tensor = transform.abs().unflatten(0, x.shape[:2])
            return spectra

    def pool(self, tokens: Tensor) -> Tensor:
        """Return the mean token after ELU, as in the classifier of BIOT."""
        return nn.functional.elu(tokens.mean((1, 2)))

    def stages(self) -> list[list[nn.Parameter]]:
        """Return the parameters of the embedding and of each layer, for layer-wise learning-rate decay."""
        layers = [list(layer.parameters()) for layer in self.encoder.transformer.layers.layers]
        return _with_embedding_stage(self, layers)


class LaBraM(Backbone):
    """LaBraM [1]_: patches of one second of each electrode.

    Parameters
    ----------
    ch_names : sequence of str
        Electrodes of the 10-20 system and its extensions.
    n_times : int
        Samples at 200 Hz, a multiple of 200.
    **options
        Further arguments of braindecode's class.

    References
    ----------
    .. [1] W.-B. Jiang, L.-M. Zhao, B.-L. Lu, "Large brain model for learning generic representations with tremendous
       EEG data in BCI", ICLR 2024.
    """

    position_indices: Tensor
    UNIT = 100.0  # µV, unit of its pretraining
    final_scale = 0.02 * 0.001

    def __init__(self, ch_names: Sequence[str], n_times: int, **options: Any) -> None:
        super().__init__()
        if n_times < RATE or n_times % RATE:
            raise ParameterError(f"n_times={n_times}: LaBraM needs a multiple of 200 samples, its patch length.")
        options = {"drop_path_prob": 0.1, "use_mean_pooling": True, **options}
        network = _build_braindecode("Labram", n_chans=len(ch_names), n_times=n_times, **options)
        self.register_buffer("position_indices", _position_indices(ch_names), persistent=False)
        self.fc_norm: Any = network.fc_norm  # applied to the pooled token only
        network.fc_norm, network.final_layer = nn.Identity(), nn.Identity()
        network.undecayed = ("cls_token", "position_embedding", "temporal_embedding")
        self.network: Any = network

    def forward(self, x: Tensor) -> Tensor:
        """Compute tokens (batch, n_chans, segments, width)."""
        scaled = (x / self.UNIT).contiguous()
        tokens: Tensor = self.network.forward_features(scaled, self.position_indices, return_patch_tokens=True)
        by_channel: Tensor = tokens.unflatten(1, (x.shape[1], -1))
        return by_channel

    def pool(self, tokens: Tensor) -> Tensor:
        """Return the normalised mean token, as in the classifier of LaBraM."""
        pooled: Tensor = self.fc_norm(tokens.mean((1, 2)))
        return pooled

    def stages(self) -> list[list[nn.Parameter]]:
        """Return the parameters of the embedding and of each block, for layer-wise learning-rate decay.

        Temporal embeddings and the norm are left out: they have the learning rate of the head.
        """
        blocks = [list(block.parameters()) for block in self.network.blocks]
        fast = {id(p) for p in (self.network.temporal_embedding, *self.fc_norm.parameters())}
        embedding, *rest = _with_embedding_stage(self, blocks)
        return [[p for p in embedding if id(p) not in fast], *rest]


#: Backbones by name.
BACKBONES: Mapping[str, Callable[..., Backbone]] = MappingProxyType({"biot": BIOT, "labram": LaBraM})


def _build_braindecode(name: str, **arguments: Any) -> Any:
    """Build a network of braindecode for 200 Hz; its classifier is not used."""
    network_class = getattr(braindecode_models(), name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return network_class(n_outputs=2, sfreq=RATE, **arguments)


def _with_embedding_stage(module: nn.Module, stages: list[list[nn.Parameter]]) -> list[list[nn.Parameter]]:
    """Insert a first stage with all parameters of the module that are in no other stage: those of its embedding."""
    named = {id(p) for stage in stages for p in stage}
    return [[p for p in module.parameters() if id(p) not in named], *stages]


# ------------------------------------------------------------------------------------------------------------ channels


def derivation(ch_names: Sequence[str]) -> Tensor:
    """Return the matrix (16, n_chans) by which BIOT computes its bipolar channels from the channels of epochs."""
    names = [older_name(plain_name(name)) for name in ch_names]
    matrix = torch.zeros(len(BIPOLAR), len(names))
    absent: dict[str, None] = {}
    for row, pair in enumerate(BIPOLAR):
        if pair in names:
            matrix[row, names.index(pair)] = 1.0
            continue
        for name, sign in zip(pair.split("-"), (1.0, -1.0), strict=True):
            if name in names:
                matrix[row, names.index(name)] = sign
            else:
                absent[name] = None
    if absent:
        raise ParameterError(
            f"ch_names lacks {', '.join(absent)}, which BIOT needs; it has {', '.join(ch_names)}. Give the 19 "
            f"electrodes of the 10-20 system, or the pairs {', '.join(BIPOLAR[:2])}, …"
        )
    return matrix


def _position_indices(ch_names: Sequence[str]) -> Tensor:
    """Return the indices (1 + n_chans,) of position embeddings of LaBraM, that of the class token first."""
    order = [name.upper() for name in import_module("braindecode.models.labram").LABRAM_CHANNEL_ORDER]
    names = [plain_name(name) for name in ch_names]
    unknown = [given for given, name in zip(ch_names, names, strict=True) if name not in order]
    if unknown:
        raise ParameterError(
            f"ch_names has {', '.join(unknown)}, which LaBraM does not know; leave out channels that are not "
            "electrodes of the 10-20 system and its extensions. Corpora need the montage referential23."
        )
    return torch.tensor([0, *(1 + order.index(name) for name in names)])

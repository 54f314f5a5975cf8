"""Settings that a training uses: those of saved models, of a paradigm, or registered for the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gbwatt.decoding.initialization import adapt_domains, initialize_classically
from gbwatt.decoding.inputs import Array, Examples
from gbwatt.decoding.network_training import logits_of
from gbwatt.decoding.paradigms import PRETRAINED, Settings, choose_settings, fine_tuning_for, sampling_rate
from gbwatt.decoding.training import ShuffledBatches
from gbwatt.decoding.transfer import model_options
from gbwatt.errors import ParameterError
from gbwatt.models.classical import BANDS
from gbwatt.models.registry import create
from gbwatt.models.signal import Signal

if TYPE_CHECKING:
    from gbwatt.decoding.estimator import EEGDecoder


def settings_for(
    decoder: EEGDecoder, signal: Signal, train: Examples, weights: Tensor | None, sources: Sequence[EEGDecoder]
) -> Settings:
    """Settings of saved models whose weights are the initial ones, of the paradigm, or registered for the model.

    With the paradigm "auto", paradigms are compared by cross-validation.  ``weights`` are those of the classes in
    the loss.
    """
    if sources:
        options, known = [model_options(source) for source in sources], sources[0].settings_.paradigm
        if any(other != options[0] for other in options):
            raise ParameterError("initialization: the models have different architectures; use one architecture.")
        if len(decoder._given_sources()) > 1 and decoder.n_members not in (None, len(sources)):
            raise ParameterError(
                f"n_members={decoder.n_members}, but initialization has weights of {len(sources)} networks, one for "
                "each member; leave out n_members, or give one model for all."
            )
        reason = f"initial weights of {', '.join(decoder._given_sources())}"
        chosen = Settings(known, reason, options[0], fine_tuning_for(known), PRETRAINED, "cosine", len(sources))
        return decoder._with_own_arguments(chosen)
    paradigm = decoder._paradigm()
    if paradigm is None:
        return decoder._registered()

    def compare(settings: Settings, rows: Array, test: Array, *, trained: bool) -> Array:
        """Log losses of the trials ``test`` for a network fitted to the trials ``rows``."""
        own, part = decoder._with_own_arguments(settings), Examples(*train[torch.from_numpy(rows)])
        others = Examples(*train[torch.from_numpy(test)])
        epochs = min(own.training.max_epochs, settings.training.max_epochs) if trained else 0
        start = own.initialization if trained else settings.initialization
        own = replace(own, training=replace(own.training, max_epochs=epochs), initialization=start)
        logits = _train_once(decoder, signal, own, part, weights, others)
        return _weighted_losses(logits, others)

    def filter_bank(rows: Array, test: Array) -> Array:
        """Log losses of the trials ``test`` for the filter-bank pipeline fitted to the trials ``rows``."""
        rate, x = sampling_rate(signal), train.x.double()
        name = "fb-tangent-space" if rate / 2 > BANDS[0][1] else "tangent-space"  # if no band fits
        pipeline: Any = create(name, **vars(replace(signal, sfreq=rate)))
        given = () if train.weight is None else (train.weight[rows],)
        pipeline.fit(x[rows], train.y[rows], weights, *given)
        with torch.no_grad():
            logits = pipeline(x[test])
        return _weighted_losses(logits, Examples(*train[torch.from_numpy(test)]))

    def frequencies(rows: Array, test: Array) -> Array:
        """Log losses of the trials ``test`` for the weighted frequencies of the classes in the trials ``rows``."""
        part, others = Examples(*train[torch.from_numpy(rows)]), Examples(*train[torch.from_numpy(test)])
        own = torch.ones(len(rows), dtype=torch.float64) if part.weight is None else part.weight.double()
        own = own if weights is None else own * weights.double()[part.y]
        totals = torch.zeros(signal.n_outputs, dtype=torch.float64).index_add(0, part.y, own)
        return _weighted_losses((totals / totals.sum()).log().expand(len(test), -1), others)

    chosen = choose_settings(paradigm, compare, filter_bank, frequencies, signal, train.y.numpy())
    return decoder._with_own_arguments(chosen)


def _train_once(
    decoder: EEGDecoder, signal: Signal, settings: Settings, train: Examples, weights: Tensor | None, test: Examples
) -> Tensor:
    """Train a network for the comparison of paradigms, and return its logits of other examples.

    There are no validation trials and no callbacks.  ``weights`` are those of the classes in the loss.
    """
    module = decoder._build(signal, settings, int(decoder.seed))
    if settings.initialization == "classical":
        initialize_classically(module, train.x, train.y, weights, train.domain, train.weight)
    else:
        adapt_domains(module, train.x, train.domain)
    net = decoder._make_trainer(module, settings, weights)
    net.fit(ShuffledBatches(train, settings.training.batch_size, decoder.device))
    return logits_of(net, test, train.domain)


def _weighted_losses(logits: Tensor, examples: Examples) -> Array:
    """Log losses (n,) of examples, multiplied by their weights."""
    losses = nn.functional.cross_entropy(logits, examples.y, reduction="none")
    weighted: Array = (losses if examples.weight is None else losses * examples.weight).numpy()
    return weighted

"""What a decoder is explained by, each thing computed once: for pictures, for sentences and for other programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gbwatt import explain
from gbwatt._validation import check_one_of
from gbwatt.data import Trials
from gbwatt.data.montage import electrode_name
from gbwatt.errors import ParameterError, UnknownPositionError
from gbwatt.explain.inputs import ask
from gbwatt.explain.randomization import rank_correlations
from gbwatt.plotting.scalp import positions

if TYPE_CHECKING:
    from gbwatt.decoding import EEGDecoder
    from gbwatt.explain import Attribution, Curve, Found, Inside, LearntMetric, Patterns, Spectra
    from gbwatt.explain.inputs import Array

SEEDS = (0, 1, 2)  # of the random weights that an attribution is compared with
_CURVE_TRIALS = 100  # at most, for deletion and insertion: each takes a hundred forward passes


def attribute(decoder: EEGDecoder, trials: Trials, method: str) -> Attribution:
    """The attribution of the true classes."""
    check_one_of("method", method, tuple(explain.METHODS))
    return explain.METHODS[method](decoder, trials)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that is computed of a decoder on some trials; None for what it does not have.

    Attributes
    ----------
    decoder : EEGDecoder
        Fitted.
    trials : Trials
        That the decoder has not been trained on, say.
    method : str
        Of the attribution, a key of :data:`gbwatt.explain.METHODS`.
    """

    decoder: EEGDecoder
    trials: Trials
    method: str = "gradient"

    def __post_init__(self) -> None:
        check_one_of("method", self.method, tuple(explain.METHODS))

    @cached_property
    def whole(self) -> Attribution:
        """Of the true classes, numbered as the decoder does."""
        return attribute(self.decoder, self.trials, self.method)

    @cached_property
    def attribution(self) -> Attribution:
        """The same, of the classes that have trials."""
        return self.whole.present

    @cached_property
    def logits(self) -> Array:
        """Of all trials (n, n_classes), in the order of the decoder's classes."""
        return ask(self.decoder, self.trials).logits()

    @cached_property
    def correct(self) -> Array:
        """Whether each trial (n,) is decoded as what it is."""
        return np.asarray(self.logits.argmax(1) == self.whole.labels)

    @cached_property
    def scale_change(self) -> float:
        """Mean change of the logits if epochs have a tenth of their size, as a share of their standard deviation."""
        small = ask(self.decoder, self.trials).logits(self.trials.X / 10)
        return float(abs(small - self.logits).mean() / max(self.logits.std(), np.finfo(float).tiny))

    @cached_property
    def correlations(self) -> Array:
        """Rank correlations (seeds, classes that have trials) of the attribution with those of random weights."""
        others = (explain.randomised(self.decoder, seed) for seed in SEEDS)
        random = (explain.METHODS[self.method](other, self.trials, self.whole.labels).present for other in others)
        return np.stack([rank_correlations(self.attribution, one, self.trials.X) for one in random])

    @cached_property
    def curves(self) -> tuple[Curve, Curve] | None:
        """Deletion and insertion of some trials, if there are two or more: each is replaced by another."""
        n = len(self.trials.y)
        if n < 2:
            return None
        rows = np.unique(np.linspace(0, n - 1, min(n, _CURVE_TRIALS)).round().astype(int))
        some = self.trials[rows]
        found = replace(self.whole, values=self.whole.values[rows], labels=self.whole.labels[rows])
        return explain.deletion(self.decoder, some, found), explain.insertion(self.decoder, some, found)

    @cached_property
    def planted(self) -> tuple[Found, ...] | None:
        """What was found of the truth, for simulated trials of one subject."""
        truth = self.trials.truth
        return None if truth is None else explain.localisation(self.whole, truth)

    @cached_property
    def inside(self) -> Inside | None:
        """Of a network with attention of SPD matrices."""
        try:
            return explain.look_inside(self.decoder, self.trials)
        except ParameterError:
            return None

    @cached_property
    def metric(self) -> LearntMetric | None:
        """Of a network whose attention has a metric with parameters."""
        try:
            return explain.learnt_metric(self.decoder)
        except ParameterError:
            return None

    @cached_property
    def filters(self) -> tuple[Patterns, Spectra] | None:
        """Patterns and spectra of a network that has filters of our kind."""
        try:
            found = explain.feature_patterns(self.decoder, self.trials)
        except ParameterError:
            return None
        return found, explain.temporal_spectra(self.decoder, self.trials.sfreq)

    @cached_property
    def electrodes(self) -> tuple[str, ...]:
        """Names of the channels as they are drawn."""
        return tuple(electrode_name(name) for name in self.trials.ch_names)

    @cached_property
    def without_places(self) -> str | None:
        """Why there is no map of the scalp; None if there is one."""
        try:
            positions(self.electrodes)
        except UnknownPositionError:
            return "it is not known where these electrodes are, as it is of names like Fz, C3 and Oz"
        except ParameterError:
            return "a map needs three electrodes or more, each at a place of its own"
        return None

    @property
    def left_out(self) -> list[str]:
        """Pictures that there are none of, and why."""
        model = self.decoder.model
        reasons = {
            "Maps of the scalp, instead of which there are bars": self.without_places,
            "Patterns of features": self._without_patterns,
            "Attention, eigenvalues and features": None if self.inside else f"{model} has no attention of SPD matrices",
            "The metric": self._without_metric,
            "Features in the plane": self.without_plane,
            "Deletion and insertion": None if self.curves else "there is one trial only, and none to replace it with",
        }
        return [f"{what}: left out, {why}." for what, why in reasons.items() if why is not None]

    @property
    def _without_patterns(self) -> str | None:
        if self.filters is None:
            return f"{self.decoder.model} has no spatial and temporal filters of our kind"
        return self.without_places

    @property
    def _without_metric(self) -> str | None:
        return "it has nothing that was learnt" if self.inside and not self.metric else None

    @property
    def without_plane(self) -> str | None:
        """Why features are not drawn in the plane; None if they are."""
        few = self.inside is not None and min(len(self.inside.features) - 1, self.inside.features.shape[1]) < 2
        return "three trials and two features are needed" if few else None

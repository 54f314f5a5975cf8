"""GBWAtt as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gbwatt.training.estimator import EEGDecoder


class GBWAttClassifier(EEGDecoder):
    """GBWAtt as a scikit-learn classifier of EEG epochs (n, n_chans, n_times).

    Parameters
    ----------
    recipe : "best" or "paper"
        Regularisation of the covariances as validation data preferred it, or as in the paper.
    task : "mi", "ssvep" or "ern", optional
        Architecture and training as the paper has them for it.
    metric, theta, shrinkage, n_segments, k : optional
        Geometry of the attention, power of the deformation, shrinkage of the covariances, length of the sequence and
        size of its matrices; see :class:`~gbwatt.models.GBWAtt`, whose defaults hold for what is not given.
    model_options : dict, optional
        Its other arguments.
    lr, batch_size, ..., callbacks
        As in :class:`EEGDecoder`.

    Examples
    --------
    >>> GBWAttClassifier(theta=0.5, max_epochs=20)
    GBWAttClassifier(max_epochs=20, theta=0.5)
    """

    def __init__(
        self,
        *,
        recipe: str = "best",
        task: str | None = None,
        metric: str | None = None,
        theta: float | None = None,
        shrinkage: float | str | None = None,
        n_segments: int | None = None,
        k: int | None = None,
        model_options: dict[str, Any] | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        weight_decay: float | None = None,
        validation: Any = 0.2,
        early_stopping: int | None = None,
        class_weight: Any = None,
        seed: int = 0,
        device: str = "cpu",
        sfreq: float | None = None,
        checkpoint: str | Path | None = None,
        log: str | Path | None = None,
        tensorboard: str | Path | None = None,
        verbose: int = 0,
        callbacks: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(
            "gbwatt",
            task=task,
            model_options=model_options,
            lr=lr,
            batch_size=batch_size,
            max_epochs=max_epochs,
            weight_decay=weight_decay,
            validation=validation,
            early_stopping=early_stopping,
            class_weight=class_weight,
            seed=seed,
            device=device,
            sfreq=sfreq,
            checkpoint=checkpoint,
            log=log,
            tensorboard=tensorboard,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.recipe = recipe
        self.metric = metric
        self.theta = theta
        self.shrinkage = shrinkage
        self.n_segments = n_segments
        self.k = k

    def _options(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in ("recipe", "metric", "theta", "shrinkage", "n_segments", "k")}
        return {name: value for name, value in named.items() if value is not None} | super()._options()

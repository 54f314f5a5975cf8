"""Training on real SSVEP recordings: accuracy, and numbers that hold for 180 epochs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gbwatt import GBWAttClassifier
from gbwatt.data import Trials, find_dataset
from tests.recordings import SUBJECTS, real

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("error::gbwatt.errors.ConvergenceWarning"),  # no mean may stop before its tolerance
]


def mamem(subject: int) -> Trials:
    return real("mamem-ssvep-ii", subject)


def trained(trials: Trials, **options) -> GBWAttClassifier:
    """The SSVEP preset, trained on sessions 1-3 and selected on session 4."""
    (split,) = find_dataset("mamem-ssvep-ii").protocol.splits(trials)
    decoder = GBWAttClassifier(task="ssvep", validation=trials[split.valid], **options)
    return decoder.fit(trials[split.train])


def accuracy(decoder: GBWAttClassifier, trials: Trials, session: str) -> float:
    chosen = trials.select(session=session)
    return decoder.score(chosen)


def assert_sound(decoder: GBWAttClassifier, trials: Trials) -> None:
    """Finite losses in every epoch, parameters on their manifolds, matrices that are SPD."""
    losses = [row[name] for row in decoder.history_ for name in ("train_loss", "valid_loss")]
    assert np.isfinite(losses).all()
    model = decoder.net_.module_.eval()
    attention = model.attention
    assert torch.linalg.eigvalsh(attention.metric.M.detach()).min() > 0
    for layer in (attention.query, attention.key, attention.value):
        w = layer.weight.detach()
        assert (w.mT @ w - torch.eye(w.shape[1])).abs().max() < 1e-5
    with torch.no_grad():
        details = model(torch.tensor(trials.X), details=True)
    for matrices in (details.covariances, details.attended):
        values = torch.linalg.eigvalsh(matrices.double())
        # positive to the rounding of matrices that are stored in float32
        assert (values[..., 0] > -1e-6 * values[..., -1]).all()
        assert torch.isfinite(matrices).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("subject", "least"), [(1, 0.75), (2, 0.80)])
def test_ssvep_is_decoded_in_a_session_that_was_never_seen(subject, least, seed):
    trials = mamem(subject)
    decoder = trained(trials, seed=seed)
    assert accuracy(decoder, trials, "5") >= least
    assert_sound(decoder, trials)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_numbers_hold_for_180_epochs_without_any_regularisation(subject):
    """The paper's recipe, whose covariances are nearly singular, in float32."""
    trials = mamem(subject)
    decoder = trained(trials, recipe="paper")
    assert len(decoder.history_) == 180
    assert_sound(decoder, trials)


TROUBLES = {
    "a constant channel": lambda x: np.concatenate([x[:, :7], np.full_like(x[:, :1], 3.0)], 1),
    "a duplicated channel": lambda x: np.concatenate([x[:, :7], x[:, :1]], 1),
    "volts": lambda x: 1e-6 * x,
    "huge amplitudes": lambda x: 1e6 * x,
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_numbers_hold_for_troubled_recordings(trouble):
    trials = mamem(1)
    trials = trials.replace(X=TROUBLES[trouble](trials.X))
    decoder = trained(trials, recipe="paper")
    assert_sound(decoder, trials)
    assert accuracy(decoder, trials, "4") > 0.35  # chance is 0.2

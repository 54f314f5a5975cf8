"""GBWAtt inside braindecode's classifier."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gbwatt import GBWAtt
from gbwatt.nn.optim import RiemannianAdam

pytestmark = pytest.mark.ecosystem


def test_model_is_trained_by_braindecodes_classifier():
    braindecode = pytest.importorskip("braindecode", reason="not installed: pip install 'gbwatt[braindecode]'")
    assert braindecode
    from braindecode import EEGClassifier

    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 4, 64)).astype("float32")
    y = np.repeat([0, 1], 20)
    x[20:, 0] *= 5
    classifier = EEGClassifier(
        GBWAtt(n_chans=4, n_outputs=2, n_times=64),
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=RiemannianAdam,
        lr=1e-2,
        max_epochs=20,
        batch_size=20,
        train_split=None,
        classes=[0, 1],
        verbose=0,
    )
    classifier.fit(x, y)
    assert classifier.score(x, y) > 0.9

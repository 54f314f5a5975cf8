from __future__ import annotations

import pytest

from gbwatt.decoding import EEGDecoder
from tests.explain.planted import make_trials


@pytest.fixture(scope="session")
def trials():
    """Trials of two classes, each with more power at an electrode of its own."""
    return make_trials()


@pytest.fixture(scope="session")
def decoder(trials):
    """A decoder that has learnt to tell them apart."""
    found = EEGDecoder("gbwatt", max_epochs=15, lr=1e-2, validation=None).fit(trials)
    assert found.score(make_trials(seed=1)) > 0.9  # or there is nothing to explain
    return found

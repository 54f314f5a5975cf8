from __future__ import annotations

import pytest

from gbwatt.decoding import EEGDecoder
from gbwatt.models import registry
from tests.decoding.tiny import make_trials, register_tiny


@pytest.fixture(autouse=True)
def tiny():
    """The model "tiny", registered for one test."""
    register_tiny()
    yield "tiny"
    del registry._MODELS["tiny"]


@pytest.fixture
def trials():
    return make_trials()


@pytest.fixture
def decoder():
    """A decoder with a tiny model and few epochs, with other arguments where they are given."""

    def make(**changes):
        return EEGDecoder(**{"model": "tiny", "max_epochs": 6, "lr": 0.02, "batch_size": 16, **changes})

    return make

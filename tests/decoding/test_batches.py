"""Every trial is in one batch."""

from __future__ import annotations

import pytest
import torch

from gbwatt.decoding.inputs import Examples
from gbwatt.decoding.training import Batches


@pytest.fixture
def examples():
    return Examples(torch.arange(9.0).reshape(9, 1, 1), torch.arange(9))


def test_trials_come_in_order_and_are_not_copied(examples):
    batches = list(Batches(examples, 4, shuffle=False))
    assert [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert all(x.flatten().tolist() == y.tolist() for x, y in batches)
    assert all(x.untyped_storage().data_ptr() == examples.x.untyped_storage().data_ptr() for x, _ in batches)


def test_training_shuffles_them_anew_each_time_and_leaves_none_alone(examples):
    batches = Batches(examples, 4, shuffle=True)
    orders = [torch.cat([y for _, y in batches]).tolist() for _ in range(5)]
    assert all(sorted(order) == list(range(9)) for order in orders)
    assert len(set(map(tuple, orders))) > 1
    assert [len(y) for _, y in batches] == [4, 5]
    assert all(x.flatten().tolist() == y.tolist() for x, y in batches)

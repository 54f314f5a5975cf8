"""Every trial is in one batch."""

from __future__ import annotations

import pytest
import torch

from gbwatt.decoding.inputs import Examples
from gbwatt.decoding.training import OrderedBatches, ShuffledBatches
from gbwatt.errors import ShapeError


@pytest.fixture
def examples():
    return Examples(torch.arange(9.0).reshape(9, 1, 1), torch.arange(9))


def test_trials_come_in_order_and_are_not_copied(examples):
    batches = list(OrderedBatches(examples, 4))
    assert [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert all(x.flatten().tolist() == y.tolist() for x, y in batches)
    assert all(x.untyped_storage().data_ptr() == examples.x.untyped_storage().data_ptr() for x, _ in batches)


def test_training_shuffles_them_anew_each_epoch_and_leaves_none_alone(examples):
    batches = ShuffledBatches(examples, 4)
    pairs = {epoch: [pair for (pair,) in batches.epoch(0, epoch)] for epoch in range(1, 6)}
    orders = [torch.cat([y for _, y in epoch]).tolist() for epoch in pairs.values()]
    assert all(sorted(order) == list(range(9)) for order in orders)
    assert len(set(map(tuple, orders))) > 1
    assert [len(y) for _, y in pairs[1]] == batches.sizes == [4, 5]
    assert all(x.flatten().tolist() == y.tolist() for epoch in pairs.values() for x, y in epoch)


def test_the_order_follows_seed_and_epoch(examples):
    def order(seed, epoch, start=0):
        return torch.cat([y for ((_, y),) in ShuffledBatches(examples, 4).epoch(seed, epoch, start)]).tolist()

    assert order(3, 2) == order(3, 2)
    assert order(3, 2, start=1) == order(3, 2)[4:]
    assert order(3, 2) != order(4, 2)


def test_one_trial_is_too_few_to_train(examples):
    with pytest.raises(ShapeError, match="1 training trial"):
        ShuffledBatches(Examples(examples.x[:1], examples.y[:1]), 4)

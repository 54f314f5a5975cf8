"""Batches of a corpus: all windows once an epoch, whatever the number of processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gbwatt.decoding.sharding import batches, own_shards, stream
from gbwatt.errors import ParameterError
from tests.decoding.windows import InMemory


@pytest.mark.parametrize(("n", "size", "shards"), [(100, 16, 4), (97, 16, 8), (33, 16, 4), (16, 16, 16), (5, 16, 4)])
def test_an_epoch_has_every_window_once(n, size, shards):
    plan = batches(n, size, shards, seed=0, epoch=1)
    assert sorted(np.concatenate([np.concatenate(batch) for batch in plan])) == list(range(n))
    assert all(len(batch) == shards and all(len(shard) > 0 for shard in batch) for batch in plan)
    assert all(sum(map(len, batch)) == size for batch in plan[:-2])


def test_a_rest_too_small_for_its_shards_goes_with_the_batch_before():
    assert [sum(map(len, batch)) for batch in batches(34, 16, 4, 0, 1)] == [16, 18]


def test_order_follows_seed_and_epoch():
    def order(seed, epoch):
        return np.concatenate([np.concatenate(batch) for batch in batches(50, 10, 2, seed, epoch)])

    assert np.array_equal(order(0, 1), order(0, 1))
    assert not np.array_equal(order(0, 1), order(0, 2))
    assert not np.array_equal(order(0, 1), order(1, 1))


def test_processes_share_the_shards_without_overlap():
    assert [list(own_shards(6, p, 3)) for p in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ParameterError, match=r"shards=8 cannot be divided among 3 processes; use shards=9"):
        own_shards(8, 0, 3)


@pytest.mark.parametrize(("n", "size", "said"), [(3, 16, "3 windows cannot"), (100, 2, "batch_size=2 cannot")])
def test_too_few_for_the_shards_is_refused(n, size, said):
    with pytest.raises(ParameterError, match=said):
        batches(n, size, 4, 0, 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_reads_what_is_asked_for(workers):
    windows, places = InMemory(9), [np.array([3, 1]), np.array([8])]
    found = list(stream(windows, places, torch.device("cpu"), workers))
    for (x, y), where in zip(found, places, strict=True):
        assert np.array_equal(x.numpy(), windows.x[where])
        assert y.tolist() == windows.labels[where].tolist()

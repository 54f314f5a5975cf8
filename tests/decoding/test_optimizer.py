"""The optimiser of the decoders."""

from __future__ import annotations

import torch

from gbwatt.nn.optim import RiemannianAdam


def test_the_decoder_trains_with_riemannian_adam(decoder, trials):
    net = decoder(lr=0.1).fit(*trials).net_
    assert isinstance(net.optimizer_, RiemannianAdam)
    state = net.optimizer_.state[net.module_.mix]
    assert state["step"] == 6 * 2
    assert torch.allclose(net.module_.mix.mT @ net.module_.mix, torch.eye(3), atol=1e-5)
    assert not torch.allclose(net.module_.mix, decoder(lr=0.0).fit(*trials).net_.module_.mix, atol=1e-2)


def test_the_decoder_passes_learning_rate_and_weight_decay_on(decoder, trials):
    groups = decoder(lr=0.03, weight_decay=0.7).fit(*trials).net_.optimizer_.param_groups
    assert [g["lr"] for g in groups] == [0.03, 0.03]
    assert [g["weight_decay"] for g in groups] == [0.7, 0.0]

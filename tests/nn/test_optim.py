"""Weight decay acts on Euclidean parameters only."""

from __future__ import annotations

import torch
from torch import nn

from gbwatt.models import create
from gbwatt.nn.manifolds import RiemannianAdam, on_manifold
from gbwatt.nn.optim import make_optimizer, parameter_groups
from tests.decoding.tiny import Tiny


def names(model, group):
    by_id = {id(p): name for name, p in model.named_parameters()}
    return {by_id[id(p)] for p in group["params"]}


def test_manifold_and_undecayed_parameters_have_no_weight_decay():
    model = Tiny(4, 2)
    decayed, free = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    assert names(model, free) == {"mix", "scale"}
    assert names(model, decayed) == {"norm.weight", "norm.bias", "final_layer.weight", "final_layer.bias"}


def test_every_trainable_parameter_of_gbwatt_is_in_one_group():
    model = create("gbwatt", n_chans=4, n_outputs=2, n_times=64, learn_theta=True, shrinkage="learnt")
    decayed, free = parameter_groups(model, 0.1)
    assert names(model, decayed) | names(model, free) == {name for name, _ in model.named_parameters()}
    assert not names(model, decayed) & names(model, free)
    assert {name for name, p in model.named_parameters() if on_manifold(p)} < names(model, free)
    assert any("theta" in name for name in names(model, free))


def test_frozen_and_shared_parameters_are_not_repeated():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    (only,) = parameter_groups(model, 0.1)
    assert len(only["params"]) == 1
    model[0].weight.requires_grad_(False)
    assert parameter_groups(model, 0.1) == []


def test_weight_decay_shrinks_what_it_should_and_steps_stay_on_the_manifold():
    model = Tiny(4, 2)
    optimizer = make_optimizer(model, lr=0.1, weight_decay=1.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert torch.equal(model.scale, before["scale"])
    assert torch.allclose(model.mix, before["mix"], atol=1e-6)
    assert (model.norm.weight < before["norm.weight"]).all()
    model.mix.grad = torch.randn(model.mix.shape, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    assert not torch.allclose(model.mix, before["mix"], atol=1e-3)
    assert torch.allclose(model.mix.mT @ model.mix, torch.eye(3), atol=1e-5)


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

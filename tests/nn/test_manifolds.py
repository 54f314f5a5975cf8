"""Riemannian Adam agrees with that of geoopt in every step, and parameters stay on their manifolds."""

from __future__ import annotations

import copy
import io
import pickle

import geoopt
import pytest
import torch
from torch import nn

from gbwatt.nn.optim import RiemannianAdam, on_manifold, positive_definite, stiefel


class Mixed(nn.Module):
    """All kinds of parameters: flat, orthonormal of two sizes, positive definite."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.flat = nn.ParameterList([torch.randn(5, 3), torch.randn(()), torch.randn(40)])
        self.maps = nn.ParameterList([stiefel(6, 4), stiefel(6, 4), stiefel(6, 4), stiefel(5, 5)])
        self.metrics = nn.ParameterList([positive_definite(4), positive_definite(4), positive_definite(3)])
        self.to(dtype)

    def set_gradients(self, seed, scale=1.0):
        generator = torch.Generator().manual_seed(seed)
        for p in self.parameters():
            p.grad = scale * torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)


def groups(model, weight_decay=0.0):
    return [
        {"params": [p for p in model.parameters() if not on_manifold(p)], "weight_decay": 0.3},
        {"params": [p for p in model.parameters() if on_manifold(p)], "weight_decay": weight_decay},
    ]


def train(model, optimizer, seeds, scheduler=None):
    for seed in seeds:
        model.set_gradients(seed)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def assert_same(a, b, tolerance=0.0):
    for (name, x), y in zip(a.named_parameters(), b.parameters(), strict=True):
        assert (x - y).norm() <= tolerance * y.norm(), name


def assert_on_manifolds(model, tolerance):
    for w in model.maps:
        assert torch.allclose(w.mT @ w, torch.eye(w.shape[1], dtype=w.dtype), atol=tolerance)
    for m in model.metrics:
        assert torch.equal(m, m.mT)
        assert torch.linalg.eigvalsh(m.detach()).min() > 0


def both(dtype=torch.float64, weight_decay=0.0, **settings):
    """A model with our optimiser, and its copy with geoopt's."""
    ours, theirs = Mixed(dtype), Mixed(dtype)
    return (
        (ours, RiemannianAdam(groups(ours, weight_decay), **settings)),
        (theirs, geoopt.optim.RiemannianAdam(groups(theirs, weight_decay), **settings)),
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 1e-2},
        {"lr": 0.2},
        {"lr": 1e-2, "betas": (0.5, 0.9), "eps": 1e-2},
        {"lr": 1e-2, "amsgrad": True},
        {"lr": 1e-2, "weight_decay": 0.1},
        {"lr": 1e-2, "stabilize": 7},
    ],
    ids=repr,
)
def test_it_equals_geoopts_over_many_steps(settings):
    (ours, optimizer), (theirs, expected) = both(**settings)
    train(ours, optimizer, range(60))
    train(theirs, expected, range(60))
    assert_same(ours, theirs, 1e-8)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        mine, own = optimizer.state[p], expected.state[q]
        assert mine.keys() == own.keys()
        assert mine["step"] == own["step"] == 60
        for name in mine.keys() - {"step"}:
            assert torch.allclose(mine[name], own[name], rtol=1e-7, atol=1e-12), name
    start = Mixed()
    assert all((p - q).norm() > 1e-2 for p, q in zip(ours.parameters(), start.parameters(), strict=True))


def test_in_float32_it_is_as_close_to_float64_as_geoopts():
    (ours, optimizer), (theirs, expected) = both(torch.float32, lr=1e-2)
    exact = Mixed()
    train(exact, RiemannianAdam(groups(exact), lr=1e-2), range(60))
    train(ours, optimizer, range(60))
    train(theirs, expected, range(60))
    for p, q, x in zip(ours.parameters(), theirs.parameters(), exact.parameters(), strict=True):
        resolution = 1e-6 * x.norm()
        assert (p - x).norm() <= 2 * (q - x).norm() + resolution


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_parameters_stay_on_their_manifolds(dtype, tolerance, scale):
    model = Mixed(dtype)
    optimizer = RiemannianAdam(model.parameters(), lr=0.1)
    for seed in range(200):
        model.set_gradients(seed, scale)
        optimizer.step()
    assert_on_manifolds(model, tolerance)
    for p in model.maps:  # averages are tangent
        inner = p.mT @ optimizer.state[p]["exp_avg"]
        assert torch.allclose(inner, -inner.mT, atol=100 * tolerance * scale)


def test_schedules_of_the_learning_rate_are_followed():
    (ours, optimizer), (theirs, expected) = both(lr=1e-1)
    for model, one in ((ours, optimizer), (theirs, expected)):
        train(model, one, range(12), torch.optim.lr_scheduler.StepLR(one, 4, 0.1))
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1e-4, 1e-4])
    assert_same(ours, theirs, 1e-9)


def test_parameters_without_gradient_rest_and_may_come_later():
    (ours, optimizer), (theirs, expected) = both(lr=1e-2)
    for model, one in ((ours, optimizer), (theirs, expected)):
        for seed in range(9):
            model.set_gradients(seed)
            late = [model.flat[0], model.maps[1], model.metrics[0]]
            for p in late if seed < 4 else []:
                p.grad = None
            before = [p.detach().clone() for p in late]
            one.step()
            assert [torch.equal(p, q) for p, q in zip(late, before, strict=True)] == [seed < 4] * 3
    assert_same(ours, theirs, 1e-9)
    assert [optimizer.state[p]["step"] for p in ours.maps] == [9, 5, 9, 9]


def through_file(optimizer):
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("how", [through_file, lambda optimizer: copy.deepcopy(optimizer.state_dict())])
@pytest.mark.parametrize("source", [RiemannianAdam, geoopt.optim.RiemannianAdam])
def test_a_state_that_was_saved_and_read_continues(how, source):
    whole, part = Mixed(), Mixed()
    train(whole, RiemannianAdam(groups(whole), lr=1e-2), range(8))
    first = source(groups(part), lr=1e-2)
    train(part, first, range(4))
    second = RiemannianAdam(groups(part), lr=0.5)
    second.load_state_dict(how(first))
    assert second.param_groups[0]["lr"] == 1e-2
    train(part, second, range(4, 8))
    assert_same(part, whole, 1e-12 if source is RiemannianAdam else 1e-9)
    fresh = Mixed()
    train(fresh, RiemannianAdam(groups(fresh), lr=1e-2), range(4, 8))
    with pytest.raises(AssertionError):  # the state matters
        assert_same(fresh, whole, 1e-3)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_alone(copied):
    model = Mixed()
    optimizer = RiemannianAdam(groups(model), lr=1e-2)
    train(model, optimizer, range(4))
    other, its = copied((model, optimizer))
    at_copy = [p.detach().clone() for p in other.parameters()]
    train(model, optimizer, range(4, 8))
    assert all(torch.equal(p, q) for p, q in zip(other.parameters(), at_copy, strict=True))
    train(other, its, range(4, 8))
    assert_same(other, model)


def test_gradients_are_read_only_and_zeroed_on_request():
    model = Mixed()
    optimizer = RiemannianAdam(groups(model, 0.1), lr=1e-2)
    model.set_gradients(0)
    before = [p.grad.clone() for p in model.parameters()]
    optimizer.step()
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before, strict=True))
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_a_closure_computes_the_gradients_and_its_value_comes_back():
    model = Mixed()
    optimizer = RiemannianAdam(model.parameters(), lr=0.05)
    target = stiefel(6, 4).detach().double()

    def closure():
        optimizer.zero_grad()
        loss = (model.maps[0] - target).square().sum() + torch.logdet(model.metrics[0]).square()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure).detach()) for _ in range(150)]
    assert losses[-1] < 0.1 * losses[0]


def test_maximising_is_minimising_the_opposite():
    up, down = Mixed(), Mixed()
    rising = RiemannianAdam(up.parameters(), lr=1e-2, maximize=True)
    falling = RiemannianAdam(down.parameters(), lr=1e-2)
    for seed in range(5):
        up.set_gradients(seed)
        down.set_gradients(seed, -1.0)
        rising.step()
        falling.step()
    assert_same(up, down, 1e-14)


def test_memory_layouts_do_not_matter():
    """Parameters and gradients that are transposed or cut out of others."""
    plain = [torch.arange(12.0).reshape(3, 4).clone(), torch.arange(8.0).reshape(4, 2).clone()]
    turned = [plain[0].mT.contiguous().mT, torch.zeros(4, 6)[:, ::3].copy_(plain[1])]
    ours = [nn.Parameter(x) for x in turned]
    theirs = [nn.Parameter(x.clone()) for x in plain]
    assert not any(p.is_contiguous() for p in ours)
    optimizer, expected = RiemannianAdam(ours, lr=0.1), torch.optim.Adam(theirs, lr=0.1)
    for seed in range(5):
        for p, q in zip(ours, theirs, strict=True):
            q.grad = torch.randn(q.shape, generator=torch.Generator().manual_seed(seed))
            p.grad = q.grad.mT.contiguous().mT if seed % 2 else q.grad.clone()
        optimizer.step()
        expected.step()
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    "manifold, shape",
    [(geoopt.CanonicalStiefel(), (6, 4)), (geoopt.Sphere(), (5,)), (geoopt.EuclideanStiefel(), (2, 6, 4))],
    ids=repr,
)
def test_other_manifolds_and_stacks_of_matrices_are_moved_too(manifold, shape):
    torch.manual_seed(0)
    start = manifold.random(*shape, dtype=torch.float64)
    moved = []
    for kind in (RiemannianAdam, geoopt.optim.RiemannianAdam):
        point = geoopt.ManifoldParameter(start.detach().clone(), manifold=manifold)
        optimizer = kind([point], lr=0.1)
        for seed in range(20):
            point.grad = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            optimizer.step()
        moved.append(point.detach())
    assert torch.allclose(*moved, atol=1e-10)
    assert not torch.allclose(moved[0], start, atol=1e-1)


def test_sparse_gradients_are_refused():
    layer = nn.Embedding(4, 2, sparse=True)
    layer(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse=False"):
        RiemannianAdam(layer.parameters()).step()

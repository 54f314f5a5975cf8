"""Results do not depend on tracing, inference mode, autocast or the number of threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gbwatt.geometry import (
    BuresWasserstein,
    _context,
    expm,
    generalized_lyapunov,
    invsqrtm,
    logm,
    lyapunov,
    powm,
    reeig,
    sqrtm,
    vech,
)
from gbwatt.geometry.grassmann import leading_subspace, orthonormalise, projection_distance
from tests.conftest import make_spd
from tests.geometry.conftest import METRICS, make_metric

EXPORT = """
import torch
from gbwatt.geometry import AffineInvariant, BuresWasserstein, unvech, vech
from gbwatt.models import create

torch.manual_seed(0)
model = create({name!r}, n_chans=4, n_outputs=2, n_times=64).eval()
x = torch.randn(3, 4, 64)
torch.export.export(model, (x,))
model.train()(x).sum().backward()
assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
points = torch.diag_embed(torch.rand(5, 6) + 1).requires_grad_()
assert torch.equal(unvech(vech(points)), points)
for metric in (AffineInvariant(), BuresWasserstein()):
    metric.dist(points[:, None], points[None]).sum().backward()
    assert type(metric.mean(points).detach()) is torch.Tensor
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gbwatt", "matt", "spdnet", "gdlnet"])
def test_exporting_a_model_leaves_the_process_as_it_was(name):
    run = subprocess.run([sys.executable, "-c", EXPORT.format(name=name)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


TRACED = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from gbwatt.geometry import BuresWasserstein, unvech, vech

with FakeTensorMode():
    unvech(vech(torch.eye(3)))
with torch.inference_mode():
    unvech(vech(torch.eye(4)))
    BuresWasserstein().dist(torch.eye(4).expand(2, 1, 4, 4), torch.eye(4).expand(3, 4, 4))
for k in (3, 4):
    x = torch.eye(k, requires_grad=True)
    assert torch.equal(unvech(vech(x)).detach(), torch.eye(k))
    unvech(vech(x)).sum().backward()
x = (2 * torch.eye(4)).expand(2, 1, 4, 4).clone().requires_grad_()
BuresWasserstein().dist(x, torch.eye(4).expand(3, 4, 4)).sum().backward()
"""


def test_nothing_is_kept_of_traced_or_inference_tensors():
    run = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


def verbs(name, k, batch, dtype, gradients=True):
    """Results of all verbs of a metric, and gradients of distances and means, by name."""
    metric = make_metric(name, k, dtype)
    x, y = make_spd(*batch, k=k, cond=50, dtype=dtype, seed=1), make_spd(*batch, k=k, cond=50, dtype=dtype, seed=2)
    points = make_spd(*batch, 3, k=k, cond=50, dtype=dtype, seed=3).requires_grad_(gradients)
    a, b = x.clone().requires_grad_(gradients), y[(0,) * len(batch)].clone().requires_grad_(gradients)
    v = metric.log(x, y)
    v = (v + v.mT) / 20
    results = {
        "dist": metric.dist(a, b),
        "sqdist": metric.sqdist(x, y),
        "log": metric.log(x, y),
        "exp": metric.exp(x, v),
        "inner": metric.inner(x, v, v),
        "geodesic": metric.geodesic(x, y, 0.3),
        "coordinates": metric.coordinates(x),
        "point": metric.point(metric.coordinates(x)),
        "mean": metric.mean(points),
        **dict(zip(("from", "to"), metric.interval(x, v), strict=True)),
    }
    if gradients:
        (results["dist"].sum() + results["mean"].square().sum()).backward()
        results |= {"d dist/dx": a.grad, "d dist/dy": b.grad, "d mean": points.grad}
    return {key: value.detach() for key, value in results.items()}


def functions(k, batch, dtype):
    """Results of all matrix functions, by name."""
    x, y = make_spd(*batch, k=k, cond=50, dtype=dtype, seed=1), make_spd(*batch, k=k, cond=50, dtype=dtype, seed=2)
    frames = leading_subspace(x, max(1, k // 2)), leading_subspace(y, max(1, k // 2))
    results = {f.__name__: f(x) for f in (logm, expm, sqrtm, invsqrtm, reeig, vech)}
    results |= {"powm": powm(x, 0.3), "lyapunov": lyapunov(x, y), "generalized": generalized_lyapunov(x, y, x)}
    return results | {"qr": orthonormalise(x), "projection": projection_distance(*frames)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", METRICS)
def test_verbs_under_autocast_equal_those_outside(name, dtype):
    for batch in ((), (5,)):
        want = verbs(name, 6, batch, dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = verbs(name, 6, batch, dtype)
        for key in want:
            if not key.startswith("d "):  # backward inside autocast: below
                assert got[key].dtype == dtype
                assert torch.equal(got[key], want[key]), key


@pytest.mark.parametrize("name", METRICS)
def test_gradients_of_a_forward_pass_under_autocast_are_exact(name):
    metric = make_metric(name, 5, torch.float32)
    grads = []
    for enabled in (False, True):
        x = make_spd(4, 3, k=5, dtype=torch.float32).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = metric.dist(x[:, 0], x[:, 1]).sum() + metric.mean(x).square().sum()
        loss.backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


def test_functions_under_autocast_equal_those_outside():
    want = functions(6, (3,), torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = functions(6, (3,), torch.float32)
    for key in want:
        assert torch.equal(got[key], want[key]), key


def test_half_precision_is_converted_under_autocast_alone():
    x = 2 * torch.eye(3, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert logm(x).dtype == torch.float32
        assert BuresWasserstein().dist(x, torch.eye(3)).dtype == torch.float32


# Sizes at which libraries were seen to give other bits with more threads: 18, 20, 22, 26 and 33.
@pytest.mark.parametrize("k", [5, 22, 33])
@pytest.mark.parametrize("name", METRICS)
def test_verbs_do_not_depend_on_the_number_of_threads(name, k, threads):
    for dtype in (torch.float32, torch.float64):
        for batch in ((), (2,), (3, 7)):
            torch.set_num_threads(1)
            want = verbs(name, k, batch, dtype)
            for number in (2, 4):
                torch.set_num_threads(number)
                got = verbs(name, k, batch, dtype)
                assert torch.get_num_threads() == number
                wrong = [key for key in want if not torch.equal(got[key], want[key])]
                assert not wrong, (dtype, batch, number, wrong)


@pytest.mark.parametrize("k", [5, 22, 33])
def test_functions_do_not_depend_on_the_number_of_threads(k, threads):
    for dtype in (torch.float32, torch.float64):
        for batch in ((), (2,), (40,)):
            torch.set_num_threads(1)
            want = functions(k, batch, dtype)
            for number in (2, 4):
                torch.set_num_threads(number)
                got = functions(k, batch, dtype)
                wrong = [key for key in want if not torch.equal(got[key], want[key])]
                assert not wrong, (dtype, batch, number, wrong)


def in_a_new_thread(function):
    """What a function returns in a thread of Python that has not used torch before."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("found", [True, False], ids=["as found", "without OpenMP"])
def test_other_threads_keep_their_number_of_threads(found, threads, monkeypatch):
    """Also those that use torch for the first time while this one is inside the block."""
    if not found:
        monkeypatch.setattr(_context, "_thread_setters", lambda: None)
    torch.set_num_threads(3)
    start, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: (start.wait(60), torch.get_num_threads(), stop.wait(60), torch.get_num_threads()))
        with _context.single_threaded(torch.eye(4)):
            start.set()
            seen = in_a_new_thread(torch.get_num_threads)
        stop.set()
        assert other.result()[1::2] == (3, 3)
    assert seen == 3
    assert torch.get_num_threads() == 3
    assert in_a_new_thread(torch.get_num_threads) == 3


def test_without_openmp_the_number_of_threads_is_set_if_no_other_thread_runs(threads, monkeypatch):
    monkeypatch.setattr(_context, "_thread_setters", lambda: None)
    torch.set_num_threads(3)
    for running, inside in ((1, 1), (2, 3)):
        monkeypatch.setattr(threading, "active_count", lambda running=running: running)
        with _context.single_threaded(torch.eye(4)):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3


def test_blocks_of_one_thread_may_be_nested_and_end_with_errors(threads, monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # where OpenMP is not found
    torch.set_num_threads(3)
    with _context.single_threaded(torch.eye(4)):
        with _context.single_threaded(torch.eye(4)):
            pass
        assert torch.get_num_threads() == 1
    with pytest.raises(ZeroDivisionError), _context.single_threaded(torch.eye(4)):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


@pytest.fixture
def threads():
    """Let a test change the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)

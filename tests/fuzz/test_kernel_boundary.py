"""Wrong arguments at the boundary of the compiled kernels.

Every call is refused by a named error, or gives what it gives for plain contiguous copies of the same numbers.  The C
functions themselves get wrong sizes, lengths, indices and addresses: they raise, and write nothing outside of their
arrays.
``make sanitize`` runs this file on a build that stops at the first read or write outside of an array.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

import gbwatt.geometry._native as geometry
import gbwatt.nn._native as filters
from gbwatt.errors import InputError
from tests.fuzz.damage import Tally

pytestmark = pytest.mark.fuzz

CALLS = 1000  # of each function


@pytest.fixture(autouse=True)
def _kernels_only():
    if not (geometry.available() and filters.available()):
        pytest.skip("the kernels were not built")


class Draw:
    """Random arguments, by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = self.rng.choice((torch.float32, torch.float64))
        self.k, self.n, self.m = (self.rng.randint(1, 7) for _ in range(3))
        self.rows, self.shared = self.rng.randint(1, 20), self.rng.randint(1, 3)

    def numbers(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.dtype)

    def spd(self, *batch: int) -> Tensor:
        a = self.numbers(*batch, self.k, self.k)
        return a @ a.mT + torch.eye(self.k, dtype=self.dtype)

    def weights(self, *shape: int) -> Tensor:
        return self.numbers(*shape).softmax(-1)


def deformed(d: Draw) -> geometry.Deformed:
    return geometry.Deformed(d.numbers(d.rows, d.k, d.k), d.numbers(d.rows, d.k, d.k), d.weights(d.rows, d.k))


def problem(d: Draw, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    return d.spd(d.rows), d.spd(groups, d.m), d.weights(d.rows, d.m)


def shared_problem(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    groups, d.rows = d.rows, d.rows * d.shared
    return problem(d, groups)


def epochs(d: Draw) -> tuple[Tensor, Tensor, int]:
    """Epochs, filters and padding."""
    length = d.rng.randint(1, 9)
    padding = d.rng.randrange(length)
    x = d.numbers(d.rows, d.n, d.rng.randint(length, 60))
    return x, d.numbers(d.m, d.n + d.rng.randint(0, 1), length), padding


def gradient(d: Draw) -> tuple[Any, ...]:
    x, kernel, padding = epochs(d)
    grad = d.numbers(d.rows, d.m, x.shape[2] + 2 * padding - kernel.shape[2] + 1)
    extra = (torch.randn_like(grad), d.numbers(d.m, 4)) if d.rng.random() < 0.5 else ()
    return (x, grad, kernel, padding, *extra)


def features(d: Draw) -> Tensor:
    return d.numbers(d.rows, d.n, d.rng.randint(4, 40))


def normalised(d: Draw) -> tuple[Any, ...]:
    y = features(d)
    return y, torch.randn_like(y), d.numbers(d.n), torch.rand(d.n, 2, dtype=torch.float64), 1e-5


def windows(d: Draw) -> tuple[Any, ...]:
    return features(d), d.rng.randint(1, 4), 0.9, 0.1, d.rng.random() < 0.5


def window_gradient(d: Draw) -> tuple[Any, ...]:
    embed_mean = d.rng.random() < 0.5
    n = d.n + embed_mean
    return features(d), d.numbers(d.rows, d.m % 4 + 1, n, n), 0.9, embed_mean


# function -> arguments that it accepts
GEOMETRY: dict[str, Any] = {
    "svd": lambda d: (d.numbers(d.rows, d.k, d.k), d.rng.random() < 0.5),
    "eigh": lambda d: (d.spd(d.rows),),
    "symmetric": lambda d: (d.spd(d.rows),),
    "bimap": lambda d: (d.spd(d.rows), d.numbers(d.k, d.n)),
    "bimap_adjoint": lambda d: (d.spd(d.rows), d.numbers(d.k, d.n), d.numbers(d.rows, d.n, d.n)),
    "compose": lambda d: (d.numbers(d.rows, d.k, d.k), d.numbers(d.rows, d.k)),
    "derive": lambda d: (d.numbers(d.rows, d.k, d.k), d.weights(d.rows, d.k), d.spd(d.rows), d.rng.randint(0, 1), 0.5),
    "chart": lambda d: (d.spd(d.rows), d.spd(), 0.75, True),
    "unchart": lambda d: (d.spd(d.rows), d.spd(), 1.5, False),
    "chart_adjoint": lambda d: (d.spd(d.rows), deformed(d), d.spd(), 0.75, d.spd(d.rows)),
    "unchart_adjoint": lambda d: (d.spd(d.rows), deformed(d), d.spd(), 0.75, d.spd(d.rows)),
    "mapped_charts": lambda d: (d.spd(d.rows), d.numbers(d.m, d.k, d.k), 0.75, True),
    "mapped_charts_adjoint": lambda d: (deformed(d), d.numbers(d.m, d.k, d.k), 0.75, d.numbers(d.m, d.rows, d.k, d.k)),
    "procrustes": lambda d: (d.spd(d.rows), d.spd(d.rng.choice((1, d.rows))), d.rng.random() < 0.5),
    "bures_start": lambda d: (d.spd(d.rows, d.m),),
    "bures_frames": lambda d: (d.spd(d.rows), d.spd(d.rows, d.m), d.rng.choice((None, d.spd(d.rows, d.m)))),
    "bures_step": lambda d: (*problem(d, d.rows), 1e-5),
    "bures_iterate_in_frames": lambda d: (
        *shared_problem(d),
        d.spd(d.rows // d.shared, d.m),
        1e-5,
        d.rng.randint(0, 20),
    ),
    "affine_slope": lambda d: problem(d, d.rows),
    "bures_adjoint": lambda d: (*shared_problem(d), d.spd(d.rows), 1e-5),
    "affine_adjoint": lambda d: (*shared_problem(d), d.spd(d.rows), 1e-5),
}
FILTERS: dict[str, Any] = {
    "correlate": lambda d: (lambda x, kernel, padding: (x, kernel, d.numbers(d.m), padding))(*epochs(d)),
    "filter_gradient": gradient,
    "mix": lambda d: (features(d), d.numbers(d.m, d.n), d.numbers(d.m)),
    "mix_gradient": lambda d: (lambda x: (x, d.numbers(d.rows, d.m, x.shape[2])))(features(d)),
    "channel_moments": lambda d: (features(d),),
    "normalise": lambda d: (features(d), d.numbers(d.n), d.numbers(d.n), 1e-5),
    "normalise_gradient": normalised,
    "covariances": windows,
    "covariance_gradient": window_gradient,
}
FUNCTIONS = [(geometry, name, make) for name, make in GEOMETRY.items()] + [
    (filters, name, make) for name, make in FILTERS.items()
]
NAMES = [f"{door.__name__.split('.')[1]}-{name}" for door, name, _ in FUNCTIONS]

# ------------------------------------------------------------------------------------------------ functions of Python


def other_shape(x: Tensor, rng: random.Random) -> Tensor:
    shape = list(x.shape)
    axis = rng.randrange(len(shape))
    shape[axis] = rng.choice((0, 1, 2, 65, shape[axis] + 1, max(0, shape[axis] - 1), 3 * shape[axis]))
    return torch.ones(shape, dtype=x.dtype)


def other_axes(x: Tensor, rng: random.Random) -> Tensor:
    return rng.choice((lambda: x[None], lambda: x[0], lambda: x.flatten(), lambda: x.sum()))()


def other_dtype(x: Tensor, rng: random.Random) -> Tensor:
    dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.complex64)
    return x.to(rng.choice(dtypes))


def transposed(x: Tensor, rng: random.Random) -> Tensor:
    a, b = (rng.randrange(x.ndim) for _ in range(2))
    return x.transpose(a, b)


def other_order(x: Tensor, rng: random.Random) -> Tensor:
    """The same numbers and shape with axes in another order in memory."""
    axes = rng.sample(range(x.ndim), x.ndim)
    return x.permute(axes).contiguous().permute([axes.index(i) for i in range(x.ndim)])


def expanded(x: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(x.ndim)
    return x.narrow(axis, 0, 1).expand(x.shape)


def every_second(x: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(x.ndim)
    return (
        x.repeat_interleave(2, axis)
        .index_select(axis, torch.arange(2 * x.shape[axis]))
        .unflatten(axis, (-1, 2))
        .select(axis + 1, rng.randint(0, 1))
    )


def end_of_storage(x: Tensor, rng: random.Random) -> Tensor:
    return torch.cat([torch.zeros(rng.randint(1, 9), dtype=x.dtype), x.flatten()])[-x.numel() :].view(x.shape)


def misaligned(x: Tensor, rng: random.Random) -> Tensor:
    data = x.contiguous().numpy().tobytes()
    offset = rng.randrange(1, x.element_size())
    return torch.frombuffer(bytearray(bytes(offset) + data), dtype=x.dtype, offset=offset).view(x.shape)


def not_finite(x: Tensor, rng: random.Random) -> Tensor:
    x = x.clone()
    x.view(-1)[rng.randrange(x.numel())] = rng.choice((torch.nan, torch.inf, -torch.inf))
    return x


def negated_view(x: Tensor, _: random.Random) -> Tensor:
    return torch._neg_view(x)


def elsewhere(x: Tensor, rng: random.Random) -> Tensor:
    return x.to("meta") if rng.random() < 0.5 else x.to_sparse()


def without_memory(x: Tensor, _: random.Random) -> Tensor:
    x = x.clone()
    x.untyped_storage().resize_(0)
    return x


DAMAGE = (
    *(other_shape, other_axes, other_dtype, transposed, other_order, expanded, every_second, end_of_storage),
    *(misaligned, not_finite, negated_view, elsewhere, without_memory),
)
SIZES = (-(2**40), -1, 0, 1, 3, 2**16, 2**31, 2**40, 2**62)
REALS = (-1.0, 0.0, 1e-300, 1e300, float("nan"), float("inf"))


def damage(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind, wrong or unusual."""
    if isinstance(value, geometry.Deformed):
        which = rng.randrange(3)
        return value._replace(**{value._fields[which]: damage(value[which], rng)})
    if isinstance(value, Tensor):
        return rng.choice(DAMAGE)(value, rng) if value.numel() and value.ndim else value
    if isinstance(value, bool) or value is None:
        return value
    return rng.choice(SIZES if isinstance(value, int) else REALS)


def plain(value: Any) -> Any:
    """Contiguous, aligned copies of the same numbers."""
    if isinstance(value, geometry.Deformed):
        return geometry.Deformed(*map(plain, value))
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.untyped_storage().nbytes() == 0:
        return value  # an argument that is not read: a call that reads it was refused
    return value.clone(memory_format=torch.contiguous_format)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize(("door", "name", "make"), FUNCTIONS, ids=NAMES)
def test_wrong_arguments_are_refused_and_unusual_ones_give_the_same(door, name, make):
    function, tally = getattr(door, name), Tally()
    for seed in range(CALLS):
        draw = Draw(seed)
        arguments = list(make(draw))
        for which in draw.rng.sample(range(len(arguments)), min(len(arguments), draw.rng.randint(1, 2))):
            arguments[which] = damage(arguments[which], draw.rng)
        tally.add(
            f"{name} {seed}",
            lambda given=arguments: function(*given),
            lambda got, given=arguments: same(got, function(*map(plain, given))),
        )
    tally.finish(CALLS)
    assert tally.counts["same"] > 0


# ----------------------------------------------------------------------------------------------------- functions of C

GUARD = 64  # bytes on either side of an array
RAW_SIZES = (-(2**63), -(2**31), -1, 0, 1, 2, 5, 17, 64, 65, 2**16, 2**31, 2**40, 2**62, 2**63 - 1)


class Recorder:
    """Stands in for a kernel and keeps the arguments of the last call."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.name, self.arguments = kernel, "", ()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.name, self.arguments = name, arguments
            return getattr(self.kernel, name)(*arguments)

        return call


class Guarded:
    """Arrays of their own, with known bytes around them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.memory = rng, []

    def array(self, size: int) -> tuple[int, int]:
        memory = torch.full((GUARD + size + GUARD,), 0x5A, dtype=torch.uint8)
        start = -memory.data_ptr() % 64 % GUARD
        inner = memory[start : start + size]
        inner.copy_(torch.frombuffer(bytearray(self.rng.randbytes(size)), dtype=torch.uint8) & 0x3F)
        self.memory.append((memory, start, size))
        return inner.data_ptr(), size

    def intact(self) -> bool:
        return all(
            bool((m[:start] == 0x5A).all()) and bool((m[start + size :] == 0x5A).all())
            for m, start, size in self.memory
        )


def wrong(argument: Any, rng: random.Random) -> Any:
    """A size, real number, tuple of sizes, or array that is smaller, or misaligned, than it was."""
    if isinstance(argument, bool):
        return argument
    if isinstance(argument, int):
        return rng.choice(RAW_SIZES) if rng.random() < 0.7 else argument + rng.choice((-1, 1))
    if isinstance(argument, float):
        return rng.choice(REALS)
    if len(argument) == 2 and argument[1] > 0:  # an array
        at, size = argument
        less = rng.choice((1, 4, 8, size // 2, size))
        return rng.choice(((at, size - min(less, size)), (at + 1, size - 1), (0, size), (at, -1), (0, 0)))
    which = rng.randrange(len(argument))
    return tuple(wrong(x, rng) if i == which else x for i, x in enumerate(argument))


@pytest.mark.parametrize(("door", "name", "make"), FUNCTIONS, ids=NAMES)
def test_c_functions_refuse_what_does_not_fit_and_write_nothing_outside(door, name, make, monkeypatch):
    handle = "_jacobi" if door is geometry else "_filters"
    kernel, outcomes = getattr(door, handle), Counter()
    recorder = Recorder(kernel)
    monkeypatch.setattr(door, handle, recorder)
    for seed in range(CALLS):
        draw = Draw(seed)
        getattr(door, name)(*make(draw))
        guarded = Guarded(draw.rng)
        # arrays come as pairs; their contents are random bytes here, so that indices are mostly out of range
        given = [
            guarded.array(a[1]) if isinstance(a, tuple) and len(a) == 2 and a[1] > 0 else a for a in recorder.arguments
        ]
        for which in draw.rng.sample(range(len(given)), draw.rng.randint(1, 3)):
            given[which] = wrong(given[which], draw.rng)
        try:
            getattr(kernel, recorder.name)(*given)
        except (InputError, OverflowError, TypeError, MemoryError) as error:
            outcomes[type(error).__name__] += 1
        else:
            outcomes["done"] += 1
        assert guarded.intact(), f"{name} {seed} wrote outside of its arrays: {given}"
    assert outcomes["InputError"] >= CALLS / 4


def test_indices_of_other_matrices_are_refused():
    a, failed = torch.eye(3).expand(2, 3, 3).contiguous(), torch.empty(2, dtype=torch.bool)
    square = torch.empty(2)
    for bad in (-1, 2, 2**40, -(2**63)):
        for which in range(2):
            index = [torch.tensor([0, 1]), torch.tensor([0, 1])]
            index[which][1] = bad
            given = geometry.arrays(a, a, *index, square, None, None, failed)
            with pytest.raises(InputError, match=str(bad)):
                geometry._jacobi.procrustes(*given, 2, 2, 2, 3, 4, 1)

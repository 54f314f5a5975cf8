"""Argument checks.  An error names the argument, the value, what is allowed and the remedy."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, NoReturn

from gbwatt.errors import (
    MismatchError,
    NotFiniteError,
    NotSPDError,
    NotSymmetricError,
    ParameterError,
    RangeError,
    ShapeError,
    WeightsError,
)

if TYPE_CHECKING:  # functions that look at tensors import it themselves: what does without them starts faster
    import torch
    from torch import Tensor


def rounding_tolerance(dtype: torch.dtype) -> float:
    """Relative size of what counts as rounding in an input: eps^(2/3), 2e-5 in float32 and 4e-11 in float64."""
    import torch

    return float(torch.finfo(dtype).eps ** (2 / 3))


def first_index(mask: Tensor) -> tuple[int, ...]:
    """Batch index of the first true entry."""
    return tuple(int(i) for i in mask.nonzero()[0])


def describe_index(index: tuple[int, ...]) -> str:
    """Say where in the batch: ``' in matrix (17, 2)'``, or nothing for a single matrix."""
    return f" in matrix {index}" if index else ""


def check_same_kind(**tensors: Tensor) -> None:
    """Require torch tensors of one floating dtype (float32 or float64) on one device."""
    import torch
    from torch import Tensor

    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise MismatchError(
                f"'{name}' is a {type(x).__name__}, a torch.Tensor is needed; use torch.as_tensor({name})."
            )
        if x.dtype not in (torch.float32, torch.float64):
            remedy = f"take {name}.real if the imaginary part is zero" if x.is_complex() else f"{name}.double()"
            raise MismatchError(
                f"'{name}' {tuple(x.shape)} has dtype {x.dtype}; float32 or float64 is needed: {remedy}."
            )
    (name0, x0), *others = tensors.items()
    for name, x in others:
        if x.dtype != x0.dtype:
            raise MismatchError(
                f"'{name0}' is {x0.dtype} and '{name}' is {x.dtype}; convert one, e.g. {name}.to({name0}.dtype)."
            )
        if x.device != x0.device:
            raise MismatchError(
                f"'{name0}' is on {x0.device} and '{name}' on {x.device}; move one, e.g. {name}.to({name0}.device)."
            )
    if x0.is_meta:
        raise MismatchError(f"'{name0}' {tuple(x0.shape)} is on the meta device, without values; move it to the CPU.")


def check_square(**matrices: Tensor) -> None:
    """Require arrays (..., k, k) with one k."""
    size: tuple[str, int] | None = None
    for name, x in matrices.items():
        if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] == 0:
            raise ShapeError(f"'{name}' {tuple(x.shape)} does not hold square matrices; (..., k, k) is needed.")
        if size is not None and x.shape[-1] != size[1]:
            raise ShapeError(
                f"'{name}' {tuple(x.shape)} holds {x.shape[-1]}x{x.shape[-1]} matrices, "
                f"but '{size[0]}' {size[1]}x{size[1]}; all must have one size."
            )
        size = (name, x.shape[-1])


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that shapes broadcast to; torch's own function takes longer than a product of small matrices."""
    out = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for axis, size in enumerate(reversed(shape), 1):
            if size != 1 and out[-axis] not in (1, size):
                raise ShapeError(f"the shapes {' and '.join(str(tuple(s)) for s in shapes)} do not broadcast.")
            out[-axis] = size if size != 1 else out[-axis]
    return tuple(out)


def check_broadcastable(**matrices: Tensor) -> None:
    """Require batch axes that broadcast against each other."""
    try:
        broadcast_shape(*(x.shape[:-2] for x in matrices.values()))
    except ShapeError:
        shapes = " and ".join(f"'{name}' {tuple(x.shape)}" for name, x in matrices.items())
        raise ShapeError(f"the batch axes of {shapes} do not broadcast; insert axes of length 1.") from None


def check_alike(**matrices: Tensor) -> None:
    """Require matrices (..., k, k), all of one kind and size, whose batch axes broadcast."""
    check_same_kind(**matrices)
    check_square(**matrices)
    check_broadcastable(**matrices)


def check_symmetric(name: str, x: Tensor, reference: Tensor | float = 0.0) -> None:
    """Require finite matrices (..., k, k) that are symmetric up to :func:`rounding_tolerance`.

    Rounding is relative to the largest entry of each matrix, or to ``reference``, of a shape that broadcasts with
    (...), where that is larger.
    """
    import torch

    if torch.equal(x, x.mT) and math.isfinite(float(x.sum())):  # symmetric to the last bit, as ours are
        return
    skew = (x - x.mT).abs().amax((-2, -1))  # NaN or infinite for NaN and for infinities
    size = torch.maximum(x.abs().amax((-2, -1)), torch.as_tensor(reference, dtype=x.dtype, device=x.device))
    good = (skew <= rounding_tolerance(x.dtype) * size) & torch.isfinite(
        skew
    )  # an infinite entry is as large as its skew
    if bool(good.all()):
        return
    x, skew = x.expand(*good.shape, *x.shape[-2:]), skew.expand(good.shape)
    at = first_index(~good)
    if not bool(torch.isfinite(x[at]).all()):
        raise NotFiniteError(
            f"'{name}' {tuple(x.shape)} has NaN or infinite entries{describe_index(at)}. "
            "Look for rejected epochs, a division by zero or an overflow before this call."
        )
    raise NotSymmetricError(
        f"'{name}' {tuple(x.shape)} is not symmetric: |x - xᵀ| is {float(skew[at]):.1e} where the largest entry is "
        f"{float(x[at].abs().max()):.1e}{describe_index(at)}. If it should be, symmetrise it: ({name} + {name}.mT) / 2."
    )


def check_in_range(what: str, *results: Tensor) -> None:
    """Require finite results of finite arguments; infinite or NaN ones have overflowed."""
    import torch

    for x in results:
        if math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all()):
            continue
        kind = str(x.dtype).removeprefix("torch.")
        wider = "" if x.dtype == torch.float64 else ", or use float64"
        raise RangeError(
            f"{what} exceeds the range of {kind}, {torch.finfo(x.dtype).max:.1e}: take a smaller step or power, "
            f"scale the matrices to eigenvalues near 1{wider}."
        )


def above_zero(what: str, x: Tensor) -> None:
    """Require results (..., k, k) that are positive definite by nature to have a diagonal that did not underflow."""
    import torch

    tiny = torch.finfo(x.dtype).tiny
    if not x.numel() or float(x.diagonal(dim1=-2, dim2=-1).min()) >= tiny:
        return
    at = first_index((x.diagonal(dim1=-2, dim2=-1) < tiny).any(-1))
    kind = str(x.dtype).removeprefix("torch.")
    wider = "" if x.dtype == torch.float64 else ", or use float64"
    raise RangeError(
        f"{what} falls below the range of {kind}, {tiny:.1e}, and is no longer positive definite{describe_index(at)}: "
        f"take a smaller step or power, scale the matrices to eigenvalues near 1{wider}."
    )


def raise_not_spd(name: str, x: Tensor, eigenvalues: Tensor, bad: Tensor) -> NoReturn:
    """Raise :class:`NotSPDError` for the first of the matrices ``x[bad]``, given all their eigenvalues."""
    import torch

    at = first_index(bad)
    low, high = float(eigenvalues[at].min()), float(eigenvalues[at].max())
    singular = abs(low) <= rounding_tolerance(x.dtype) * abs(high)
    what = "is singular to working precision" if singular else "is not positive definite"
    if name == "M":
        remedy = "A step of learning was too large for it: take a smaller one, or learn S in M = expm(S)."
    elif singular:
        remedy = (
            "A common average reference, an interpolated channel or fewer samples than channels make covariances "
            "singular: add a small multiple of the identity (shrinkage), drop a channel, or use BuresWasserstein(), "
            "which accepts them" + (", or float64." if x.dtype == torch.float32 else ".")
        )
    else:
        remedy = "It is no covariance: look for a flat recording, a difference of matrices or an overflow before."
    raise NotSPDError(
        f"'{name}' {tuple(x.shape)} {what}: smallest eigenvalue {low:.1e}, largest {high:.1e}{describe_index(at)}. "
        f"{remedy}"
    )


def check_weights(points: Tensor, weights: Tensor) -> None:
    """Require weights (..., q, m) or (m,) that match points (..., m, k, k), are not negative and sum to one."""
    import torch

    check_same_kind(points=points, weights=weights)
    m = points.shape[-3]
    if weights.ndim == 0 or weights.shape[-1] != m:
        raise ShapeError(
            f"'weights' {tuple(weights.shape)} does not match the {m} matrices of 'points' {tuple(points.shape)}; "
            f"(..., q, {m}) or ({m},) is needed."
        )
    try:
        broadcast_shape(points.shape[:-3], weights.shape[:-2])
    except ShapeError:
        raise ShapeError(
            f"the batch axes of 'points' {tuple(points.shape)} and 'weights' {tuple(weights.shape)} do not broadcast; "
            "(..., m, k, k) and (..., q, m) are needed."
        ) from None
    if torch.compiler.is_compiling():
        return
    _proportions(weights.detach())


def _proportions(weights: Tensor) -> None:
    """Require weights that are not negative and sum to one."""
    import torch

    if weights.numel() == 0:
        return
    total = weights.sum(-1)
    if float(weights.min()) >= 0 and float((total - 1).abs().max()) <= rounding_tolerance(
        weights.dtype
    ):  # false for NaN
        return
    if not bool(torch.isfinite(weights).all()):
        raise NotFiniteError(f"'weights' {tuple(weights.shape)} has NaN or infinite entries.")
    if bool((weights < 0).any()):
        raise WeightsError(
            f"'weights' {tuple(weights.shape)} has negative entries, down to {float(weights.min()):.1e}; "
            "a softmax makes weights that are positive and sum to one."
        )
    off = (total - 1).abs() > rounding_tolerance(weights.dtype)
    raise WeightsError(
        f"'weights' {tuple(weights.shape)} must sum to one over the last axis, got {float(total[off][0]):.9g}; "
        "divide by weights.sum(-1, keepdim=True), in the dtype of the points."
    )


def check_finite(**numbers: Tensor | float) -> None:
    """Require floating numbers, or tensors of them, without NaN and infinities."""
    import torch
    from torch import Tensor

    for name, value in numbers.items():
        tensor = torch.as_tensor(value).detach()
        if isinstance(value, Tensor) and not tensor.is_floating_point():
            raise MismatchError(f"'{name}' has dtype {tensor.dtype}; a floating number is needed: {name}.double().")
        if not bool(torch.isfinite(tensor).all()):
            raise ParameterError(f"{name}={value} must be finite.")


def check_number(name: str, value: object) -> None:
    """Require a finite real number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ParameterError(f"{name}={value!r} must be a finite number.")


def check_at_least(name: str, value: object, least: int) -> None:
    """Require a whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ParameterError(f"{name}={value!r} must be a whole number, {least} or more.")


def check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Require one of the allowed names."""
    if value not in allowed:
        plain = {name.casefold(): name for name in allowed}
        plain = {name.partition("-")[0]: whole for name, whole in plain.items()} | plain  # beginnings of long ones, too
        close = difflib.get_close_matches(str(value).casefold(), plain, n=1)
        hint = f" Did you mean {plain[close[0]]!r}?" if close else ""
        raise ParameterError(f"{name}={value!r} is not known; it is one of {', '.join(map(repr, allowed))}.{hint}")

"""Argument checks, whose errors name the argument, its value, the allowed values and the remedy."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NoReturn

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

if TYPE_CHECKING:  # imported inside functions, so that commands without tensors start faster
    import torch
    from torch import Tensor


def rounding_tolerance(dtype: torch.dtype) -> float:
    """Relative tolerance for rounding of inputs: eps^(2/3), 2e-5 in float32 and 4e-11 in float64."""
    import torch

    return float(torch.finfo(dtype).eps ** (2 / 3))


def first_index(mask: Tensor) -> tuple[int, ...]:
    """Batch index of the first true entry, for error messages."""
    return tuple(int(i) for i in mask.nonzero()[0])


def describe_index(index: tuple[int, ...]) -> str:
    """Position in the batch for messages: ``' in matrix (17, 2)'``, or nothing for a single matrix."""
    return f" in matrix {index}" if index else ""


def check_same_kind(**tensors: Tensor) -> None:
    """Require torch tensors of one floating dtype (float32 or float64) on one device."""
    import torch
    from torch import Tensor

    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise MismatchError(
                f"'{name}' is a {type(x).__name__}, but a torch.Tensor is required; use torch.as_tensor({name})."
            )
        if x.dtype not in (torch.float32, torch.float64):
            remedy = f"take {name}.real if the imaginary part is zero" if x.is_complex() else f"{name}.double()"
            raise MismatchError(
                f"'{name}' {tuple(x.shape)} has dtype {x.dtype}; float32 or float64 is required: {remedy}."
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
            raise ShapeError(f"'{name}' {tuple(x.shape)} does not contain square matrices; (..., k, k) is required.")
        if size is not None and x.shape[-1] != size[1]:
            raise ShapeError(
                f"'{name}' {tuple(x.shape)} contains {x.shape[-1]}x{x.shape[-1]} matrices, "
                f"but '{size[0]}' {size[1]}x{size[1]}; all must have the same size."
            )
        size = (name, x.shape[-1])


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Broadcast shapes; torch's own function takes longer than a product of small matrices."""
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
    """Require matrices (..., k, k) of one dtype, device and size, whose batch axes broadcast."""
    check_same_kind(**matrices)
    check_square(**matrices)
    check_broadcastable(**matrices)


def check_symmetric(name: str, x: Tensor, reference: Tensor | float = 0.0) -> None:
    """Require finite matrices (..., k, k) that are symmetric up to :func:`rounding_tolerance`.

    Rounding is relative to the largest entry of each matrix, or to ``reference``, whose shape broadcasts with (...), if
    that is larger.
    """
    import torch

    if torch.equal(x, x.mT) and math.isfinite(float(x.sum())):  # exactly symmetric, as results of this package are
        return
    skew = (x - x.mT).abs().amax((-2, -1))  # NaN or infinite for NaN and for infinities
    size = torch.maximum(x.abs().amax((-2, -1)), torch.as_tensor(reference, dtype=x.dtype, device=x.device))
    good = (skew <= rounding_tolerance(x.dtype) * size) & torch.isfinite(
        skew
    )  # the difference of an infinite entry is infinite
    if bool(good.all()):
        return
    x, skew = x.expand(*good.shape, *x.shape[-2:]), skew.expand(good.shape)
    at = first_index(~good)
    if not bool(torch.isfinite(x[at]).all()):
        raise NotFiniteError(
            f"'{name}' {tuple(x.shape)} has NaN or infinite entries{describe_index(at)}. "
            "Check for rejected epochs, a division by zero or an overflow before this call."
        )
    raise NotSymmetricError(
        f"'{name}' {tuple(x.shape)} is not symmetric: |x - xᵀ| is {float(skew[at]):.1e} and the largest entry is "
        f"{float(x[at].abs().max()):.1e}{describe_index(at)}. Symmetrise it if appropriate: ({name} + {name}.mT) / 2."
    )


def check_in_range(what: str, *results: Tensor) -> None:
    """Require finite results; infinite or NaN results of finite arguments have overflowed."""
    import torch

    for x in results:
        if math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all()):
            continue
        _raise_out_of_range(f"{what} exceeds", x, torch.finfo(x.dtype).max)


def above_zero(what: str, x: Tensor) -> None:
    """Raise an error if a diagonal of results (..., k, k), positive definite in exact arithmetic, has underflowed."""
    import torch

    tiny = torch.finfo(x.dtype).tiny
    if not x.numel() or float(x.diagonal(dim1=-2, dim2=-1).min()) >= tiny:
        return
    at = first_index((x.diagonal(dim1=-2, dim2=-1) < tiny).any(-1))
    consequence = f", and is no longer positive definite{describe_index(at)}"
    _raise_out_of_range(f"{what} falls below", x, tiny, consequence)


def _raise_out_of_range(problem: str, x: Tensor, limit: float, consequence: str = "") -> NoReturn:
    """Raise :class:`RangeError` for results beyond a limit of their dtype; ``problem`` begins the message."""
    kind = str(x.dtype).removeprefix("torch.")
    wider = "" if kind == "float64" else ", or use float64"
    raise RangeError(
        f"{problem} the range of {kind}, {limit:.1e}{consequence}: use a smaller step or power, scale the matrices to "
        f"eigenvalues near 1{wider}."
    )


def raise_not_spd(name: str, x: Tensor, eigenvalues: Tensor, bad: Tensor) -> NoReturn:
    """Raise :class:`NotSPDError` for the first of the matrices ``x[bad]``, given all their eigenvalues."""
    import torch

    at = first_index(bad)
    low, high = float(eigenvalues[at].min()), float(eigenvalues[at].max())
    singular = abs(low) <= rounding_tolerance(x.dtype) * abs(high)
    what = "is singular to working precision" if singular else "is not positive definite"
    if name == "M":
        remedy = "A training step was too large: use a smaller learning rate, or train S in M = expm(S)."
    elif singular:
        remedy = (
            "A common average reference, an interpolated channel or fewer samples than channels make covariances "
            "singular: add a small multiple of the identity (shrinkage), drop a channel, or use BuresWasserstein(), "
            "which accepts them" + (", or float64." if x.dtype == torch.float32 else ".")
        )
    else:
        remedy = "It is not a covariance: check for a flat recording, a difference of matrices or an overflow."
    raise NotSPDError(
        f"'{name}' {tuple(x.shape)} {what}: smallest eigenvalue {low:.1e}, largest {high:.1e}{describe_index(at)}. "
        f"{remedy}"
    )


def check_weights(points: Tensor, weights: Tensor) -> None:
    """Require non-negative weights (..., q, m) or (m,) that match points (..., m, k, k) and sum to one."""
    import torch

    check_same_kind(points=points, weights=weights)
    m = points.shape[-3]
    if weights.ndim == 0 or weights.shape[-1] != m:
        raise ShapeError(
            f"'weights' {tuple(weights.shape)} does not match the {m} matrices of 'points' {tuple(points.shape)}; "
            f"(..., q, {m}) or ({m},) is required."
        )
    try:
        broadcast_shape(points.shape[:-3], weights.shape[:-2])
    except ShapeError:
        raise ShapeError(
            f"the batch axes of 'points' {tuple(points.shape)} and 'weights' {tuple(weights.shape)} do not broadcast; "
            "(..., m, k, k) and (..., q, m) are required."
        ) from None
    if torch.compiler.is_compiling():
        return
    _require_proportions(weights.detach())


def _require_proportions(weights: Tensor) -> None:
    """Raise an error unless weights are finite, non-negative and sum to one over the last axis."""
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
            "a softmax gives positive weights that sum to one."
        )
    off = (total - 1).abs() > rounding_tolerance(weights.dtype)
    raise WeightsError(
        f"'weights' {tuple(weights.shape)} must sum to one over the last axis, got {float(total[off][0]):.9g}; "
        "divide by weights.sum(-1, keepdim=True), in the dtype of the points."
    )


def check_finite(**numbers: Tensor | float) -> None:
    """Require finite floating-point numbers or tensors."""
    import torch
    from torch import Tensor

    for name, value in numbers.items():
        tensor = torch.as_tensor(value).detach()
        if isinstance(value, Tensor) and not tensor.is_floating_point():
            raise MismatchError(
                f"'{name}' has dtype {tensor.dtype}; a floating-point number is required: {name}.double()."
            )
        if not bool(torch.isfinite(tensor).all()):
            raise ParameterError(f"{name}={value} must be finite.")


def check_number(name: str, value: object) -> None:
    """Require a finite real number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ParameterError(f"{name}={value!r} must be a finite number.")


def check_positive(name: str, value: Any, unit: str = "") -> float:
    """Require a positive, finite number, and return it as float; ``unit`` is named in the error."""
    check_number(name, value)
    if value <= 0:
        raise ParameterError(f"{name}={value} must be positive{unit and f', in {unit}'}.")
    return float(value)


def check_at_least(name: str, value: object, least: int) -> None:
    """Require an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ParameterError(f"{name}={value!r} must be a whole number, {least} or more.")


def check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Require one of the allowed names."""
    if value not in allowed:
        plain = {name.casefold(): name for name in allowed}
        plain = {
            name.partition("-")[0]: whole for name, whole in plain.items()
        } | plain  # also matches the first part of long names
        close = difflib.get_close_matches(str(value).casefold(), plain, n=1)
        hint = f" Did you mean {plain[close[0]]!r}?" if close else ""
        raise ParameterError(f"{name}={value!r} is not known; it is one of {', '.join(map(repr, allowed))}.{hint}")

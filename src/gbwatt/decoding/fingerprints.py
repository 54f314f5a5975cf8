"""Short fingerprints of trials, by which a model recognises the trials that it was trained on."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from gbwatt.errors import ModelFileError

if TYPE_CHECKING:
    from gbwatt.decoding.inputs import Sets

Array = NDArray[Any]
Codes = NDArray[np.int8]

#: What a trial may have been used for.
TRAINING, VALIDATION, UNSEEN, UNKNOWN = "training", "validation", "unseen", "unknown"

#: Version of the fingerprints: those of another version are not compared.
VERSION = 1
#: Numbers in a fingerprint, and steps between two of them, in standard deviations of the numbers.
SIZE, STEP = 32, 1 / 16
#: Slow cosines that are removed from each channel, the mean included: drifts make different trials look alike.
SLOW = 8
#: A trial with less of its variance left after that has no fingerprint.
LEAST_VARIANCE = 1e-6
#: Largest root mean square distance between fingerprints of one trial, also as a share of that between neighbours.
TOLERANCE, SHARE = 0.32, 0.6
#: With more trials no fingerprints are kept: they would be most of the model's configuration.
MOST = 50_000

_NONE = -128  # in all places of a fingerprint that a trial does not have
_BLOCK = 256  # trials at a time


@dataclass(frozen=True, eq=False)
class TrialFingerprints:
    """Fingerprints of the training and the validation trials, int8 (n, SIZE) each.

    A fingerprint has 32 coarsely rounded random projections of a trial, after slow drifts were removed and channels
    were brought to similar amplitudes.  It does not depend on the unit, and changes little with the rounding of float32
    or of files in whole microvolts, while other trials, also of the same subject, have fingerprints far away.  The
    samples cannot be recovered from it; anyone who has a trial can check whether it was used.
    """

    train: Codes
    valid: Codes

    @classmethod
    def of(cls, sets: Sets) -> Self | None:
        """Fingerprints of the trials that a model learns from and is selected on; None if these are too many."""
        if len(sets.train) + (0 if sets.valid is None else len(sets.valid)) > MOST:
            return None
        train = fingerprints(sets.train.x.numpy())
        return cls(train, train[:0] if sets.valid is None else fingerprints(sets.valid.x.numpy()))

    def used_for(self, x: Array) -> NDArray[np.str_]:
        """For each trial of an array (n, n_chans, n_times) "training", "validation", "unseen", or "unknown"."""
        asked = fingerprints(x)
        limit = self._limit()
        found = np.full(len(asked), UNSEEN, dtype=f"<U{len(VALIDATION)}")
        found[_nearest(asked, self.valid) <= limit] = VALIDATION
        found[_nearest(asked, self.train) <= limit] = TRAINING
        without = bool(_absent(self.train).any() or _absent(self.valid).any())
        found[_absent(asked) & without] = UNKNOWN
        return found

    def _limit(self) -> float:
        """Largest distance between fingerprints of one trial, well below that between different training trials."""
        some = self.train[~_absent(self.train)][:2000]
        if len(some) < 2:
            return TOLERANCE
        neighbours = _nearest(some, some, itself=False)
        different = neighbours[neighbours > 2 * STEP]  # a trial that is there twice says nothing
        return min(TOLERANCE, SHARE * float(np.quantile(different, 0.01))) if len(different) else TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """In a form that JSON keeps."""
        packed = {name: base64.b64encode(getattr(self, name).tobytes()).decode() for name in ("train", "valid")}
        return {"version": VERSION, "size": SIZE, **packed}

    @classmethod
    def from_dict(cls, values: Any) -> Self | None:
        """What :meth:`to_dict` gave; None if there is nothing, or if it is of another version."""
        if values is None:
            return None
        if not isinstance(values, Mapping) or not isinstance(values.get("version"), int):
            raise ModelFileError("the fingerprints of the training trials have no 'version'; save the model anew.")
        if values["version"] != VERSION:
            return None
        return cls(_unpacked(values, "train"), _unpacked(values, "valid"))


def _unpacked(values: Mapping[str, Any], name: str) -> Codes:
    try:
        content = base64.b64decode(values[name], validate=True)
        return np.frombuffer(content, dtype=np.int8).reshape(-1, SIZE)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ModelFileError(
            f"the fingerprints of the trials {name!r} are damaged ({error}); copy the model again, or save it anew."
        ) from None


def fingerprints(x: Array) -> Codes:
    """Fingerprints int8 (n, SIZE) of trials (n, n_chans, n_times)."""
    blocks = [_fingerprints(x[start : start + _BLOCK]) for start in range(0, len(x), _BLOCK)]
    return np.concatenate([np.empty((0, SIZE), dtype=np.int8), *blocks])


def _fingerprints(x: Array) -> Codes:
    n, n_chans, n_times = x.shape
    largest = np.abs(x).max(axis=(1, 2), keepdims=True)
    z = np.asarray(x / np.where(largest > 0, largest, 1), dtype=np.float32)  # neither overflow nor underflow
    slow = _slow(n_times)
    z -= z.mean(axis=2, keepdims=True)
    before = np.square(z).sum(axis=(1, 2))
    z -= (z @ slow) @ slow.T
    deviation = z.std(axis=2, keepdims=True)
    usual = np.median(deviation, axis=1, keepdims=True)
    usual = np.where(usual > 0, usual, deviation.max(axis=1, keepdims=True))
    absent = np.square(z).sum(axis=(1, 2)) <= LEAST_VARIANCE * before
    z /= np.where(absent[:, None, None], 1, np.hypot(deviation, usual))  # neither flat nor noisy channels count for all
    z = z.reshape(n, -1)
    length = np.linalg.norm(z, axis=1, keepdims=True)
    numbers = (z / np.where(length > 0, length, 1)) @ _signs(n_chans, n_times)
    codes: Codes = np.rint(numbers / STEP).clip(-127, 127).astype(np.int8)
    codes[absent] = _NONE
    return codes


def _slow(n_times: int) -> Array:
    """Orthonormal slow cosines (n_times, m)."""
    order = np.arange(min(SLOW, max(1, n_times // 4)))
    cosines = np.cos(np.pi * (np.arange(n_times)[:, None] + 0.5) * order / n_times)
    return np.asarray(cosines / np.linalg.norm(cosines, axis=0), dtype=np.float32)


@lru_cache(maxsize=4)
def _signs(n_chans: int, n_times: int) -> NDArray[np.float32]:
    """Random signs (n_chans * n_times, SIZE) that are the same everywhere and always."""
    n_bits = n_chans * n_times * SIZE
    content = hashlib.shake_256(f"gbwatt trials {VERSION} {n_chans} {n_times}".encode()).digest(-(-n_bits // 8))
    bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8), count=n_bits)
    return (2 * bits.astype(np.float32) - 1).reshape(-1, SIZE)


def _absent(codes: Codes) -> NDArray[np.bool_]:
    return np.asarray((codes == _NONE).all(axis=1))


def _nearest(asked: Codes, known: Codes, itself: bool = True) -> Array:
    """Root mean square difference (n,) to the nearest of the known; infinite where there is none.

    Without ``itself``, both are the same trials, and a trial is not its own neighbour.
    """
    nearest = np.full(len(asked), np.inf)
    if not len(known):
        return nearest
    b = known.astype(np.float32)
    for start in range(0, len(asked), _BLOCK):
        a = asked[start : start + _BLOCK].astype(np.float32)
        squares = np.square(a).sum(1)[:, None] + np.square(b).sum(1) - 2 * a @ b.T
        squares[:, _absent(known)] = np.inf
        if not itself:
            squares[np.arange(len(a)), start + np.arange(len(a))] = np.inf
        nearest[start : start + len(a)] = squares.min(axis=1)
    nearest[_absent(asked)] = np.inf
    return np.asarray(STEP * np.sqrt(np.maximum(nearest, 0) / SIZE))

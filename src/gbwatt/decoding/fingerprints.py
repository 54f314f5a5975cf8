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

#: Uses of a trial.
TRAINING, VALIDATION, UNSEEN, UNKNOWN = "training", "validation", "unseen", "unknown"

#: Version of the fingerprints; those of other versions are not compared.
VERSION = 1
#: Number of integers in a fingerprint, and the rounding step in standard deviations.
SIZE, STEP = 32, 1 / 16
#: Number of slow cosines, including the mean, that are removed from each channel: drifts make trials look alike.
SLOW = 8
#: A trial with a smaller share of its variance left after that has no fingerprint.
LEAST_VARIANCE = 1e-6
#: Largest root mean square distance between fingerprints of the same trial: absolute, and relative to the distance
#: between nearest different trials.
TOLERANCE, SHARE = 0.32, 0.6
#: Maximum number of trials; with more, fingerprints would dominate the size of the saved configuration.
MOST = 50_000

_NONE = -128  # all values of the fingerprint of a trial that has none
_BLOCK = 256  # number of trials processed at a time


@dataclass(frozen=True, eq=False)
class TrialFingerprints:
    """Fingerprints of the training and the validation trials, int8 (n, SIZE) each.

    A fingerprint consists of 32 coarsely rounded random projections of a trial, after slow drifts are removed and
    channels are scaled to similar amplitudes.  It does not depend on the unit, and changes little if samples are
    rounded to float32 or to whole microvolts; fingerprints of different trials, even of the same subject, are far
    apart.  The samples cannot be recovered from it, but anyone who has a trial can check whether it was used.
    """

    train: Codes
    valid: Codes

    @classmethod
    def of(cls, sets: Sets) -> Self | None:
        """Fingerprints of training and validation trials; None if there are too many trials."""
        if len(sets.train) + (0 if sets.valid is None else len(sets.valid)) > MOST:
            return None
        train = fingerprints(sets.train.x.numpy())
        return cls(train, train[:0] if sets.valid is None else fingerprints(sets.valid.x.numpy()))

    def joined(self, other: TrialFingerprints | None) -> TrialFingerprints | None:
        """Fingerprints of two trainings of one model, one after the other; None if they are unknown or too many."""
        if other is None or sum(map(len, (self.train, self.valid, other.train, other.valid))) > MOST:
            return None
        train, valid = np.concatenate([self.train, other.train]), np.concatenate([self.valid, other.valid])
        return TrialFingerprints(train, valid)

    def used_for(self, x: Array) -> NDArray[np.str_]:
        """Use of each trial of an array (n, n_chans, n_times): "training", "validation", "unseen" or "unknown"."""
        codes = fingerprints(x)
        limit = self._largest_match_distance()
        uses = np.full(len(codes), UNSEEN, dtype=f"<U{len(VALIDATION)}")
        uses[_nearest_distances(codes, self.valid) <= limit] = VALIDATION
        uses[_nearest_distances(codes, self.train) <= limit] = TRAINING
        some_absent = bool(_without_fingerprint(self.train).any() or _without_fingerprint(self.valid).any())
        uses[_without_fingerprint(codes) & some_absent] = UNKNOWN
        return uses

    def _largest_match_distance(self) -> float:
        """Largest distance at which fingerprints belong to the same trial; below that of different training trials."""
        some = self.train[~_without_fingerprint(self.train)][:2000]
        if len(some) < 2:
            return TOLERANCE
        distances = _nearest_distances(some, some, same_trials=True)
        different = distances[distances > 2 * STEP]  # without repeated trials
        return min(TOLERANCE, SHARE * float(np.quantile(different, 0.01))) if len(different) else TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON, with the fingerprints in Base64."""
        packed = {name: base64.b64encode(getattr(self, name).tobytes()).decode() for name in ("train", "valid")}
        return {"version": VERSION, "size": SIZE, **packed}

    @classmethod
    def from_dict(cls, values: Any) -> Self | None:
        """Restore from the result of :meth:`to_dict`; None for models without fingerprints or of another version."""
        if values is None:
            return None
        if not isinstance(values, Mapping) or not isinstance(values.get("version"), int):
            raise ModelFileError("the fingerprints of the training trials have no 'version'; save the model anew.")
        if values["version"] != VERSION:
            return None
        return cls(_decode_fingerprints(values, "train"), _decode_fingerprints(values, "valid"))


def _decode_fingerprints(values: Mapping[str, Any], name: str) -> Codes:
    """Decode the Base64 fingerprints of the part ``name`` ("train" or "valid") to int8 (n, SIZE)."""
    try:
        content = base64.b64decode(values[name], validate=True)
        return np.frombuffer(content, dtype=np.int8).reshape(-1, SIZE)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ModelFileError(
            f"the fingerprints of the trials {name!r} are damaged ({error}); copy the model again, or save it anew."
        ) from None


def fingerprints(x: Array) -> Codes:
    """Fingerprints int8 (n, SIZE) of trials (n, n_chans, n_times)."""
    blocks = [_fingerprint_block(x[start : start + _BLOCK]) for start in range(0, len(x), _BLOCK)]
    return np.concatenate([np.empty((0, SIZE), dtype=np.int8), *blocks])


def _fingerprint_block(x: Array) -> Codes:
    """Fingerprints of one block of trials (n, n_chans, n_times), see :class:`TrialFingerprints`."""
    n, n_chans, n_times = x.shape
    largest = np.abs(x).max(axis=(1, 2), keepdims=True)
    z = np.asarray(x / np.where(largest > 0, largest, 1), dtype=np.float32)  # avoids overflow and underflow
    slow = _slow_cosines(n_times)
    z -= z.mean(axis=2, keepdims=True)
    before = np.square(z).sum(axis=(1, 2))
    z -= (z @ slow) @ slow.T
    deviation = z.std(axis=2, keepdims=True)
    usual = np.median(deviation, axis=1, keepdims=True)
    usual = np.where(usual > 0, usual, deviation.max(axis=1, keepdims=True))
    absent = np.square(z).sum(axis=(1, 2)) <= LEAST_VARIANCE * before
    z /= np.where(absent[:, None, None], 1, np.hypot(deviation, usual))  # so that no flat or noisy channel dominates
    z = z.reshape(n, -1)
    length = np.linalg.norm(z, axis=1, keepdims=True)
    numbers = (z / np.where(length > 0, length, 1)) @ _random_signs(n_chans, n_times)
    codes: Codes = np.rint(numbers / STEP).clip(-127, 127).astype(np.int8)
    codes[absent] = _NONE
    return codes


def _slow_cosines(n_times: int) -> Array:
    """Orthonormal slow cosines (n_times, m), which are removed from trials as drifts."""
    order = np.arange(min(SLOW, max(1, n_times // 4)))
    cosines = np.cos(np.pi * (np.arange(n_times)[:, None] + 0.5) * order / n_times)
    return np.asarray(cosines / np.linalg.norm(cosines, axis=0), dtype=np.float32)


@lru_cache(maxsize=4)
def _random_signs(n_chans: int, n_times: int) -> NDArray[np.float32]:
    """Projection matrix (n_chans * n_times, SIZE) of random signs; the same on all machines and library versions."""
    n_bits = n_chans * n_times * SIZE
    content = hashlib.shake_256(f"gbwatt trials {VERSION} {n_chans} {n_times}".encode()).digest(-(-n_bits // 8))
    bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8), count=n_bits)
    return (2 * bits.astype(np.float32) - 1).reshape(-1, SIZE)


def _without_fingerprint(codes: Codes) -> NDArray[np.bool_]:
    """Mask (n,) of the trials that have no fingerprint."""
    return np.asarray((codes == _NONE).all(axis=1))


def _nearest_distances(codes: Codes, others: Codes, same_trials: bool = False) -> Array:
    """Root mean square distance (n,) of each fingerprint to the nearest of others; infinite if there is none.

    If both arrays contain the ``same_trials`` in the same order, no trial is compared with itself.
    """
    nearest = np.full(len(codes), np.inf)
    if not len(others):
        return nearest
    b = others.astype(np.float32)
    for start in range(0, len(codes), _BLOCK):
        a = codes[start : start + _BLOCK].astype(np.float32)
        squares = np.square(a).sum(1)[:, None] + np.square(b).sum(1) - 2 * a @ b.T
        squares[:, _without_fingerprint(others)] = np.inf
        if same_trials:
            squares[np.arange(len(a)), start + np.arange(len(a))] = np.inf
        nearest[start : start + len(a)] = squares.min(axis=1)
    nearest[_without_fingerprint(codes)] = np.inf
    return np.asarray(STEP * np.sqrt(np.maximum(nearest, 0) / SIZE))

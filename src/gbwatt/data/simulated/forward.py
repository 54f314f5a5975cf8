"""From dipoles in a spherical head to voltages at the electrodes of a real montage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data.montage import montage_name

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Head:
    """A head of three spherical shells and the electrodes on it.

    Attributes
    ----------
    directions : mapping from str to array (3,)
        Unit vectors from the centre of the sphere to each electrode: x to the right, y to the front, z up.
    sphere : mne.bem.ConductorModel
    info : mne.Info
        All electrodes of the montage.
    """

    directions: Mapping[str, Array]
    sphere: Any
    info: Any

    def leads(
        self, ch_names: tuple[str, ...], reference: tuple[str, ...], positions: Array, orientations: Array
    ) -> Array:
        """Voltage (n_chans, n) between each electrode and the reference, for dipoles of unit moment.

        Positions (n, 3) are fractions of the head's radius away from its centre, less than 0.9 for the inner skull;
        orientations (n, 3) are unit vectors.
        """
        import mne

        names = list(dict.fromkeys((*ch_names, *reference)))
        info = mne.pick_info(self.info, [self.info["ch_names"].index(name) for name in names])
        places, n = self.sphere["r0"] + self.sphere.radius * positions, len(positions)
        dipoles = mne.Dipole(np.zeros(n), places, np.ones(n), orientations, np.ones(n))
        with mne.utils.use_log_level("ERROR"):
            solution, _ = mne.make_forward_dipole(dipoles, self.sphere, info)
        potential: Array = solution["sol"]["data"]
        zero: Array = potential[[names.index(name) for name in reference]].mean(axis=0)
        return np.asarray(potential[: len(ch_names)] - zero)


@lru_cache(maxsize=1)
def head() -> Head:
    """The head; made once in a process."""
    import mne

    with mne.utils.use_log_level("ERROR"):
        montage = mne.channels.make_standard_montage(montage_name())
        info = mne.create_info(montage.ch_names, 1.0, "eeg").set_montage(montage)
        places = np.stack([channel["loc"][:3] for channel in info["chs"]])
        sphere = mne.make_sphere_model(*_fit_sphere(places))
    directions = unit(places - sphere["r0"])
    return Head(dict(zip(info["ch_names"], directions, strict=True)), sphere, info)


def unit(vectors: Array) -> Array:
    """Vectors (..., 3) of length one, in the same directions."""
    found: Array = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return found


def _fit_sphere(points: Array) -> tuple[Array, float]:
    """Centre (3,) and radius of the sphere that is nearest to points (n, 3), by |p|² = 2 p·c + (r² - |c|²)."""
    system = np.column_stack([2 * points, np.ones(len(points))])
    *centre, rest = np.linalg.lstsq(system, (points**2).sum(axis=1), rcond=None)[0]
    return np.array(centre), float(np.sqrt(rest + np.dot(centre, centre)))

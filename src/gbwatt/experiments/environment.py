"""What a result was made with."""

from __future__ import annotations

import platform
from importlib import metadata

#: Packages whose version may show in a result.
PACKAGES = ("gbwatt", "torch", "numpy", "scipy", "scikit-learn", "geoopt", "mne", "braindecode", "accelerate")


def versions() -> dict[str, str]:
    """Packages, Python and machine."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found

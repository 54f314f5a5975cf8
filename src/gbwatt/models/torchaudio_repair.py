"""Libraries of torchaudio that cannot be loaded, set aside and put back.

torchaudio refuses to be imported when its compiled libraries are there and do not load, as those built for CUDA beside
a torch without it; when they are absent it works, but for functions that braindecode does not use.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

# Its libraries must be in the process before those of torchaudio can be tried.
import torch  # noqa: F401

ASIDE = ".aside"


def package_folder(name: str = "torchaudio") -> Path | None:
    """Where a package is installed, without importing it; None if it is not."""
    spec = find_spec(name)
    places = None if spec is None else spec.submodule_search_locations
    return Path(next(iter(places))) if places else None


def imports(name: str = "torchaudio") -> bool:
    """Whether a new process of this Python can import a package."""
    command = [sys.executable, "-c", f"import {name}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def loads(library: Path) -> bool:
    """Whether a shared library can be loaded beside torch."""
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True


def set_aside(folder: Path) -> list[Path]:
    """Rename the libraries below a folder that do not load to ``*.so.aside``; the new paths."""
    broken = [library for library in sorted(folder.rglob("*.so")) if not loads(library)]
    return [library.rename(library.with_name(library.name + ASIDE)) for library in broken]


def put_back(folder: Path) -> list[Path]:
    """Undo :func:`set_aside`; the old paths again."""
    return [path.rename(path.with_name(path.name.removesuffix(ASIDE))) for path in sorted(folder.rglob("*.so" + ASIDE))]


def main(arguments: list[str] | None = None) -> int:
    """Set aside the libraries of torchaudio that do not load, or put them back; 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m gbwatt.models.torchaudio_repair", description=__doc__)
    parser.add_argument("--restore", action="store_true", help="put back what was set aside")
    lines, good = _restore() if parser.parse_args(arguments).restore else _repair()
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if good else 1


def _repair() -> tuple[list[str], bool]:
    folder = package_folder()
    if folder is None:
        return ["torchaudio is not installed: nothing to do."], True
    if imports():
        return ["torchaudio can be imported: nothing to do."], True
    lines = [f"set aside: {path}" for path in set_aside(folder)]
    if imports():
        return [*lines, "torchaudio can be imported now; --restore undoes this."], True
    return [
        *lines,
        f"{sys.executable} -c 'import torchaudio' still fails, for another reason than libraries that do not load: "
        "reinstall torchaudio for the installed torch.",
    ], False


def _restore() -> tuple[list[str], bool]:
    folder = package_folder()
    restored = [] if folder is None else put_back(folder)
    return [f"put back: {path}" for path in restored] or ["nothing was set aside."], True


if __name__ == "__main__":
    sys.exit(main())

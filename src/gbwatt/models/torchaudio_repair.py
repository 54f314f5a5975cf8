"""Disable compiled libraries of torchaudio that cannot be loaded, and restore them.

torchaudio cannot be imported if its compiled libraries exist but do not load, for example if they are built for CUDA
and torch is not.  Without the libraries it can be imported, and only lacks functions that braindecode does not use.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

# The libraries of torchaudio can be loaded only after those of torch.
import torch  # noqa: F401

ASIDE = ".aside"


def package_folder(name: str = "torchaudio") -> Path | None:
    """Folder of an installed package, without importing it; None if it is not installed."""
    spec = find_spec(name)
    locations = None if spec is None else spec.submodule_search_locations
    return Path(next(iter(locations))) if locations else None


def imports(name: str = "torchaudio") -> bool:
    """Whether a new process of this Python can import a package."""
    command = [sys.executable, "-c", f"import {name}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def loads(library: Path) -> bool:
    """Whether a shared library can be loaded together with torch."""
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True


def set_aside(folder: Path) -> list[Path]:
    """Rename the libraries below a folder that do not load to ``*.so.aside``, and return the new paths."""
    broken = [library for library in sorted(folder.rglob("*.so")) if not loads(library)]
    return [library.rename(library.with_name(library.name + ASIDE)) for library in broken]


def put_back(folder: Path) -> list[Path]:
    """Undo :func:`set_aside`, and return the original paths."""
    return [path.rename(path.with_name(path.name.removesuffix(ASIDE))) for path in sorted(folder.rglob("*.so" + ASIDE))]


def main(arguments: list[str] | None = None) -> int:
    """Disable libraries of torchaudio that do not load, or restore them; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gbwatt.models.torchaudio_repair", description=__doc__)
    parser.add_argument("--restore", action="store_true", help="restore the libraries that were disabled")
    lines, good = _restore() if parser.parse_args(arguments).restore else _repair()
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if good else 1


def _repair() -> tuple[list[str], bool]:
    """Disable libraries that cannot be loaded; return what to print, and whether torchaudio can be imported."""
    folder = package_folder()
    if folder is None:
        return ["torchaudio is not installed: nothing to do."], True
    if imports():
        return ["torchaudio can be imported: nothing to do."], True
    lines = [f"disabled: {path}" for path in set_aside(folder)]
    if imports():
        return [*lines, "torchaudio can be imported now; undo this with --restore."], True
    return [
        *lines,
        f"{sys.executable} -c 'import torchaudio' still fails for another reason: "
        "reinstall torchaudio for the installed torch.",
    ], False


def _restore() -> tuple[list[str], bool]:
    """Restore disabled libraries; return what to print, and True."""
    folder = package_folder()
    restored = [] if folder is None else put_back(folder)
    return [f"restored: {path}" for path in restored] or ["no library is disabled."], True


if __name__ == "__main__":
    sys.exit(main())

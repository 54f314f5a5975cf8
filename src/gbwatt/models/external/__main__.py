"""``python -m gbwatt.models.external [--restore]``: make torchaudio importable beside a torch without CUDA."""

from __future__ import annotations

import argparse
import sys

from gbwatt.models.external import repair


def main(arguments: list[str] | None = None) -> int:
    """Set aside the libraries of torchaudio that do not load, or put them back; 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m gbwatt.models.external", description=repair.__doc__)
    parser.add_argument("--restore", action="store_true", help="put back what was set aside")
    lines, good = _restore() if parser.parse_args(arguments).restore else _repair()
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if good else 1


def _repair() -> tuple[list[str], bool]:
    folder = repair.package_folder()
    if folder is None:
        return ["torchaudio is not installed: nothing to do."], True
    if repair.imports():
        return ["torchaudio can be imported: nothing to do."], True
    lines = [f"set aside: {path}" for path in repair.set_aside(folder)]
    if repair.imports():
        return [*lines, "torchaudio can be imported now; --restore undoes this."], True
    return [
        *lines,
        f"{sys.executable} -c 'import torchaudio' still fails, for another reason than libraries that do not load: "
        "reinstall torchaudio for the installed torch.",
    ], False


def _restore() -> tuple[list[str], bool]:
    folder = repair.package_folder()
    restored = [] if folder is None else repair.put_back(folder)
    return [f"put back: {path}" for path in restored] or ["nothing was set aside."], True


if __name__ == "__main__":
    sys.exit(main())

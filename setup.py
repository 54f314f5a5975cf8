"""Declares the C extensions; everything else is in pyproject.toml.

The extensions accelerate operations on batches of small matrices and filters of epochs. They are optional: without a C
compiler with vector extensions (GCC or Clang), or if the compilation fails, the build continues without them, and the
package uses torch instead, with the same results.
"""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# One binary for CPython 3.11 and later; free-threaded interpreters have no stable ABI.
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")
# `make sanitize` builds extensions that stop at a read or write outside of an array and at undefined behaviour.
SANITIZE = (
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"] if os.environ.get("GBWATT_SANITIZE") else []
)


class BuildExt(build_ext):
    """Adds the flags that depend on the compiler, which is known only once the build has begun."""

    def build_extensions(self) -> None:
        if self.compiler.compiler_type != "msvc":
            # errno and floating-point traps are never read, and minding them prevents vectorised loops.
            # No -ffast-math: the code must see NaN and infinity, and round as written.
            flags = ["-O3", "-fno-math-errno", "-fno-trapping-math"]
            if SANITIZE:
                flags += ["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZE]
            threads = ["-pthread"] if os.name == "posix" else []
            for extension in self.extensions:
                extension.extra_compile_args += flags + threads
                extension.extra_link_args += threads + (["-ldl"] if sys.platform == "linux" else []) + SANITIZE
        super().build_extensions()


def extension(name: str) -> Extension:
    """The extension ``gbwatt.package._native._name`` of the C source of that name."""
    return Extension(
        f"gbwatt.{name}",
        sources=[f"src/gbwatt/{name.replace('.', '/')}.c"],
        depends=[*HEADERS, "setup.py"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else [],
        py_limited_api=STABLE_ABI,
        optional=not SANITIZE,
    )


HEADERS = sorted(map(str, Path("src/gbwatt").glob("*/_native/_*.h")))

setup(
    ext_modules=[extension("geometry._native._jacobi"), extension("nn._native._filters")],
    cmdclass={"build_ext": BuildExt},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)

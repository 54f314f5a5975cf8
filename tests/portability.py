"""Runs the tests under several levels of instruction sets: ``make portability``.

Each run forces one level of every library that picks its code by the processor: the kernels of gbwatt, torch, OpenBLAS
(of NumPy and SciPy), MKL and oneDNN (of torch) and the C library.  Before the tests a run checks that the libraries
took the level.  The lowest level runs the tests of everything that computes, the others those of the geometry and the
layers; ``make test`` runs all default tests at the processor's own level.  Levels that the processor lacks are named
and left out.

Arguments go to pytest.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

NUMERICAL = ("tests/test_kernels.py", "tests/geometry", "tests/nn")
COMPUTING = (*NUMERICAL, *(f"tests/{name}" for name in ("models", "decoding", "explain", "golden", "data")))


@dataclass(frozen=True)
class Level:
    """An instruction set, and how each library is told to use it."""

    name: str
    flags: frozenset[str]  # of the processor
    gbwatt: str
    torch: str
    openblas: str
    mkl: str
    onednn: str
    threads: int
    tests: tuple[str, ...] = NUMERICAL
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "GBWATT_CPU_CAPABILITY": self.gbwatt,
            "ATEN_CPU_CAPABILITY": self.torch,
            "OPENBLAS_CORETYPE": self.openblas,
            "MKL_ENABLE_INSTRUCTIONS": self.mkl,
            "ONEDNN_MAX_CPU_ISA": self.onednn,
            "GBWATT_TEST_THREADS": str(self.threads),
            "OMP_NUM_THREADS": str(self.threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # workers have more threads than there are cores
            **self.extra,
        }


AVX2 = frozenset({"avx", "avx2", "fma"})
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"}
LEVELS = (
    Level(
        "baseline",
        frozenset({"sse4_2"}),
        *("default", "default", "Prescott", "SSE4_2", "SSE41"),
        threads=1,
        tests=COMPUTING,
        extra={"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F"},
    ),
    Level("avx", frozenset({"avx"}), "default", "default", "Sandybridge", "AVX", "AVX", threads=2),
    Level("avx2", AVX2, "avx2", "avx2", "Haswell", "AVX2", "AVX2", threads=1),
    Level("avx512", AVX512, "avx2", "avx512", "SkylakeX", "AVX512", "AVX512_CORE", threads=2),
)

# Prints the levels in use of the libraries that tell.
PROBE = """
import numpy, scipy.linalg, threadpoolctl, torch
from gbwatt.geometry import _native as geometry
from gbwatt.nn import _native as filters
print(geometry._jacobi.level() if geometry.available() else "none")
print(filters._filters.level() if filters.available() else "none")
print(torch.backends.cpu.get_cpu_capability().lower())
print(*sorted({str(x.get("architecture")).lower() for x in threadpoolctl.threadpool_info()
               if x["internal_api"] == "openblas"}))
"""


def flags() -> set[str]:
    """Instruction sets of this processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split(":")[1].split()) for line in lines if line.startswith("flags")), set())


def check(level: Level, environment: dict[str, str]) -> None:
    """Exit with an error if a library did not take the level."""
    answer = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(f"portability: the level {level.name} cannot be used:\n{answer.stderr}")
    kernel, filters, torch, openblas = answer.stdout.splitlines()
    expected = {
        "the kernel of gbwatt.geometry": (kernel, level.gbwatt),
        "the kernel of gbwatt.nn": (filters, level.gbwatt),
        "torch": (torch, level.torch),
        "OpenBLAS": ("prescott" if openblas == "katmai" else openblas, level.openblas.lower()),  # the same code
    }
    for library, (got, wanted) in expected.items():
        if got != wanted:
            sys.exit(f"portability: at level {level.name}, {library} uses {got!r}, but {wanted!r} was asked for")


def main(arguments: list[str]) -> int:
    """Run the tests at every level that the processor has; returns how many levels failed."""
    if platform.machine().lower() not in ("x86_64", "amd64") or not (here := flags()):
        sys.stdout.write("portability: levels are known of x86-64 under Linux only; the tests run once, as they are\n")
        return subprocess.run([sys.executable, "-m", "pytest", *arguments, *NUMERICAL], check=False).returncode
    failed = []
    for level in LEVELS:
        if missing := level.flags - here:
            sys.stdout.write(f"portability: {level.name} LEFT OUT, the processor lacks {' '.join(sorted(missing))}\n")
            continue
        environment = os.environ | level.environment
        check(level, environment)
        settings = " ".join(f"{name}={value}" for name, value in level.environment.items())
        sys.stdout.write(f"portability: {level.name}: {settings}\n")
        sys.stdout.flush()
        started = time.monotonic()
        if subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, *level.tests], env=environment, check=False
        ).returncode:
            failed.append(level.name)
        sys.stdout.write(f"portability: {level.name} took {time.monotonic() - started:.0f} s\n")
    sys.stdout.write(f"portability: {'failed at ' + ', '.join(failed) if failed else 'passed at every level'}\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

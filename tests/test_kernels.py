"""Common properties of the compiled kernels: build, instruction sets, versions, argument checks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

import gbwatt.geometry._native
import gbwatt.nn._native
from gbwatt.errors import InputError, MismatchError, ShapeError
from gbwatt.geometry import AffineInvariant, BuresWasserstein, GeneralizedBuresWasserstein
from gbwatt.nn import SegmentCovariance, features

COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
HEADER = Path(sysconfig.get_path("include"), "Python.h")
DOORS = {"jacobi": gbwatt.geometry._native, "filters": gbwatt.nn._native}


@pytest.fixture
def kernels():
    """Both kernels, set back to the level they had."""
    if not all(door.available() for door in DOORS.values()):
        pytest.skip("the kernels were not built")
    both = gbwatt.geometry._native._jacobi, gbwatt.nn._native._filters
    before = [kernel.level() for kernel in both]
    yield both
    for kernel, level in zip(both, before, strict=True):
        kernel.set_level(level)


@pytest.mark.skipif(not COMPILER or not HEADER.exists(), reason="no C compiler: the torch path is used")
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_kernel_is_built_where_a_compiler_is(door, pytestconfig):
    assert door.available() != pytestconfig.getoption("--torch-path")


def test_kernels_have_sanitizers_where_they_are_required_and_only_there(kernels, pytestconfig):
    """A sanitized run must not take the kernels of the source folder."""
    for kernel in kernels:
        assert (b"__asan_init" in Path(kernel.__file__).read_bytes()) == pytestconfig.getoption("--sanitized")


def test_limits_are_the_same_on_both_sides(kernels):
    jacobi, filters = kernels
    assert jacobi.MAX_SIZE == gbwatt.geometry._native.MAX_SIZE
    assert jacobi.LANES == gbwatt.geometry._native.BLOCK
    assert jacobi.MAX_MAPS == gbwatt.geometry._native.MAX_MAPS
    assert filters.MAX_CHANNELS == gbwatt.nn._native.MAX_CHANNELS


def test_interface_numbers_are_the_same_on_both_sides(kernels):
    for door, kernel in zip(DOORS.values(), kernels, strict=True):
        assert kernel.INTERFACE == door.INTERFACE


@pytest.mark.slow
@pytest.mark.parametrize("interface", ["absent", 0, 99])
@pytest.mark.parametrize("module", ["gbwatt.geometry._native._jacobi", "gbwatt.nn._native._filters"])
def test_a_kernel_of_another_version_is_not_used_and_warns_once(module, interface):
    """Its functions would be called with wrong arguments; torch gives the same results."""
    code = f"""if True:
        import sys, types, warnings
        stale = sys.modules[{module!r}] = types.ModuleType({module!r})
        if {interface!r} != "absent":
            stale.INTERFACE = {interface!r}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch
            import gbwatt.nn._native
            from gbwatt.geometry import BuresWasserstein, _native
        (warning,) = [one for one in caught if one.category is RuntimeWarning]
        assert {module!r} in str(warning.message), warning.message
        assert "another version of gbwatt" in str(warning.message), warning.message
        assert "pip install ." in str(warning.message), warning.message
        door = _native if "geometry" in {module!r} else gbwatt.nn._native
        assert not door.available()
        x = torch.eye(3).expand(4, 3, 3) * torch.arange(1, 5)[:, None, None]
        assert BuresWasserstein().mean(x).isfinite().all()
    """
    done = in_new_process(code, "default")
    assert done.returncode == 0, done.stderr


# -------------------------------------------------------------------------------------------------- instruction sets


def results(spd) -> list[torch.Tensor]:
    """Some of what both kernels compute, in float64."""
    x, y = spd(20, 3, k=7, cond=1e2), spd(20, 3, k=7, cond=1e2, seed=1)
    m = spd(k=7, cond=10, seed=2)
    epochs, filters = torch.randn(6, 4, 90, dtype=torch.float64), torch.randn(5, 5, 9, dtype=torch.float64)
    filtered = features.correlate(epochs, filters, 4, torch.ones(5, dtype=torch.float64))
    return [
        BuresWasserstein().dist(x, y),
        BuresWasserstein().mean(x),
        AffineInvariant().mean(x),
        GeneralizedBuresWasserstein(m, 1.5).mean(x),
        filtered,
        SegmentCovariance(3)(filtered[:, None]),
    ]


def test_every_level_gives_the_same_results_to_rounding(kernels, spd):
    """Errors are of 1e-12, where an iteration stops, times the condition, 1e2, of matrices or less."""
    found = []
    for level in gbwatt.geometry._native.LEVELS:
        if all(level in kernel.levels() for kernel in kernels):
            for kernel in kernels:
                kernel.set_level(level)
                assert kernel.level() == level
            torch.manual_seed(0)
            found.append(results(spd))
    assert found
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert (a - b).abs().max() <= 1e-10 * a.abs().max()


def test_a_level_that_is_unknown_is_refused_and_changes_nothing(kernels):
    for kernel in kernels:
        before = kernel.level()
        for name in ("", "avx", "AVX2", "avx512", "avx2 "):
            with pytest.raises(ValueError, match=f"'{name}'"):
                kernel.set_level(name)
        assert kernel.level() == before


def in_new_process(code: str, level: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"GBWATT_CPU_CAPABILITY": level}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("kernels")
def test_the_environment_forces_a_level():
    code = """if True:
        from gbwatt.geometry import _native as geometry
        from gbwatt.nn import _native as filters
        assert geometry._jacobi.level() == filters._filters.level() == "default"
    """
    done = in_new_process(code, "default")
    assert done.returncode == 0, done.stderr


def test_an_unknown_level_in_the_environment_is_an_error():
    done = in_new_process("import gbwatt.geometry", "sse9")
    assert done.returncode == 1
    assert "ParameterError: GBWATT_CPU_CAPABILITY='sse9'" in done.stderr
    assert "'avx2'" in done.stderr


def test_a_level_that_the_processor_lacks_is_an_error(monkeypatch):
    class Old:
        @staticmethod
        def levels() -> tuple[str, ...]:
            return ("default",)

    monkeypatch.setenv("GBWATT_CPU_CAPABILITY", "avx2")
    with pytest.raises(InputError, match=r"GBWATT_CPU_CAPABILITY='avx2'.*'default'"):
        gbwatt.geometry._native.force_level(Old())


# ------------------------------------------------------------------------------------------------------- the boundary


@pytest.mark.parametrize("size", [1, 3, 5, 40])
def test_coordinates_of_another_size_than_the_metric_are_refused(size):
    """They were read beyond the end of M."""
    metric = GeneralizedBuresWasserstein(torch.eye(4), 1.5)
    with pytest.raises(ShapeError, match=rf"'M' \(4, 4\).*'c' {size}x{size}"):
        metric.point(torch.zeros(1, size, size))


def test_coordinates_of_another_dtype_than_the_metric_are_refused():
    with pytest.raises(MismatchError, match=r"float64.*float32"):
        GeneralizedBuresWasserstein(torch.eye(4), 1.5).point(torch.zeros(1, 4, 4, dtype=torch.float64))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.eye(3), torch.eye(4)), ShapeError, r"'c'.*\(4, 4\).*\(3, 3\)"),
        ((torch.eye(3), torch.eye(3).double()), MismatchError, "'c'.*float64.*float32"),
        ((torch.eye(3), torch.eye(3, device="meta")), MismatchError, "'c'.*meta"),
        ((torch.eye(65), torch.eye(65)), ShapeError, r"'x'.*\(65, 65\).*64"),
        ((torch.zeros(2, 0, 0), torch.eye(3)), ShapeError, r"'x'.*\(2, 0, 0\)"),
        ((torch.eye(3).int(), torch.eye(3)), MismatchError, "'x'.*int32"),
        ((torch.eye(3).to_sparse(), torch.eye(3)), MismatchError, "'x'.*sparse"),
    ],
    ids=["shape", "dtype", "device", "too large", "empty", "not real", "sparse"],
)
def test_doors_name_the_array_that_does_not_fit(arguments, error, message):
    with pytest.raises(error, match=message):
        gbwatt.geometry._native.chart(*arguments, 0.5, True)


def test_c_functions_compare_arrays_with_their_sizes(kernels):
    jacobi, filters = kernels
    x, u, v, s, failed = (
        torch.eye(4)[None],
        *torch.empty(2, 1, 4, 4),
        torch.empty(1, 4),
        torch.empty(1, dtype=torch.bool),
    )
    given = gbwatt.geometry._native.arrays(x, u, s, v, failed)
    assert jacobi.svd(*given, 1, 4, 4, 1) == 0
    for sizes in ((1, 40, 4, 1), (2, 4, 4, 1), (1, 4, 8, 1), (2**58, 4, 4, 1)):  # k, items, bytes of a number, overflow
        with pytest.raises(InputError, match="'f'"):
            jacobi.svd(*given, *sizes)
    for sizes, name in (
        ((-1, 4, 4, 1), "items"),
        ((1, 0, 4, 1), "k"),
        ((1, 4, 2, 1), "itemsize"),
        ((1, 4, 4, -1), "threads"),
    ):
        with pytest.raises(InputError, match=f"'{name}'"):
            jacobi.svd(*given, *sizes)
    y, out = torch.ones(2, 3, 8), torch.empty(2, 2, 3, 3)
    arrays = gbwatt.geometry._native.arrays(y, None, out)
    filters.covariances(*arrays, (2, 3, 8), 2, 0.9, 0.1, False, 4, 1)
    for shape, windows, name in (((2, 3, 9), 2, "x"), ((2, 3, 8), 3, "out"), ((2, 3, 8), 9, "windows")):
        with pytest.raises(InputError, match=f"'{name}'"):
            filters.covariances(*arrays, shape, windows, 0.9, 0.1, False, 4, 1)

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

import gbwatt.geometry._native
import gbwatt.nn._native

COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
HEADER = Path(sysconfig.get_path("include"), "Python.h")


@pytest.mark.skipif(not COMPILER or not HEADER.exists(), reason="no C compiler: the torch path is used")
@pytest.mark.parametrize("door", [gbwatt.geometry._native, gbwatt.nn._native], ids=["jacobi", "filters"])
def test_a_kernel_is_built_where_a_compiler_is(door, pytestconfig):
    assert door.available() != pytestconfig.getoption("--torch-path")

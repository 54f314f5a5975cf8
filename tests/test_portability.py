"""How `make portability` chooses what to run."""

from __future__ import annotations

import subprocess

import pytest

from tests import portability
from tests.portability import LEVELS


@pytest.fixture
def started(monkeypatch):
    """Environments of the runs of pytest, which are not made; libraries take every level."""
    environments = []

    def run(command, env=None, **_):
        level = next(x for x in LEVELS if env["OPENBLAS_CORETYPE"] == x.openblas)
        if "pytest" in command:
            environments.append(env)
        stdout = f"{level.gbwatt}\n{level.gbwatt}\n{level.torch}\n{level.openblas.lower()}\n"
        return subprocess.CompletedProcess(command, 0, stdout, "")

    monkeypatch.setattr(portability.subprocess, "run", run)
    monkeypatch.setattr(portability.platform, "machine", lambda: "x86_64")
    return environments


def test_every_level_is_run_where_the_processor_has_them_all(started, monkeypatch):
    monkeypatch.setattr(portability, "flags", lambda: set.union(*(set(level.flags) for level in LEVELS)))
    assert portability.main([]) == 0
    assert [env["ATEN_CPU_CAPABILITY"] for env in started] == [level.torch for level in LEVELS]
    assert {env["GBWATT_CPU_CAPABILITY"] for env in started} == {"default", "avx2"}
    assert {env["GBWATT_TEST_THREADS"] for env in started} == {"1", "2"}


def test_levels_that_the_processor_lacks_are_named_and_not_run(started, monkeypatch, capsys):
    monkeypatch.setattr(portability, "flags", lambda: {"sse4_2", "avx"})
    assert portability.main([]) == 0
    assert [env["MKL_ENABLE_INSTRUCTIONS"] for env in started] == ["SSE4_2", "AVX"]
    assert "avx2 LEFT OUT, the processor lacks avx2 fma" in capsys.readouterr().out


@pytest.mark.usefixtures("started")
def test_a_library_that_does_not_take_its_level_is_an_error(monkeypatch):
    answer = subprocess.CompletedProcess([], 0, "avx2\navx2\navx2\nhaswell\n", "")
    monkeypatch.setattr(portability.subprocess, "run", lambda *_, **__: answer)
    monkeypatch.setattr(portability, "flags", lambda: {"sse4_2"})
    with pytest.raises(SystemExit, match="baseline"):
        portability.main([])

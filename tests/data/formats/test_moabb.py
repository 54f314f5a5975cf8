"""What is said where MOABB is not installed; the reader itself is tested with MOABB, in the ecosystem tests."""

from __future__ import annotations

import sys

import pytest

from gbwatt.data.formats.moabb import read_moabb


def test_missing_moabb_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "moabb", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'gbwatt\[moabb\]'"):
        read_moabb("BNCI2014_001", 1)

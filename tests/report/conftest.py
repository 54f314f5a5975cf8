"""Reports without the time that figures take, where a test is not of them."""

from __future__ import annotations

import pytest

from gbwatt.report import Figure, figures

SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'


@pytest.fixture(autouse=True)
def _quick(request, monkeypatch):
    """Figures are made but not written out, unless a test asks for ``drawn``."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(figures, "figure_block", lambda _, caption: Figure(SVG, caption))


@pytest.fixture(scope="module")
def drawn():
    """Asks for real figures."""

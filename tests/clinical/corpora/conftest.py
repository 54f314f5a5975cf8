"""Corpora of a few seconds."""

from __future__ import annotations

import shutil

import pytest

from gbwatt.clinical.corpora import build
from tests.clinical.corpora.synthetic import write_tuab, write_tuev


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Both corpora, each with four recordings at least; not to be changed."""
    root = tmp_path_factory.mktemp("corpora")
    write_tuab(root / "tuab", train=1, evaluation=1, seconds=12, sfreq=200)
    write_tuev(root / "tuev", train=2, evaluation=1, seconds=12, events=2, sfreq=200)
    return root


@pytest.fixture
def tuab(small, tmp_path):
    """A copy of the abnormal corpus, to be changed."""
    return shutil.copytree(small / "tuab", tmp_path / "tuab")


@pytest.fixture
def tuev(small, tmp_path):
    """A copy of the events corpus, to be changed."""
    return shutil.copytree(small / "tuev", tmp_path / "tuev")


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    """Caches of both corpora with several subjects; not to be changed."""
    root = tmp_path_factory.mktemp("caches")
    write_tuab(root / "tuab", train=4, evaluation=1, recordings=2, seconds=20)
    write_tuev(root / "tuev", train=6, evaluation=3, seconds=30)
    for name in ("tuab", "tuev"):
        build(root / name, root / f"{name}-cache", corpus=name)
    return {name: root / f"{name}-cache" for name in ("tuab", "tuev")}

"""Corpora among the data sets: they have names and places there, but are not loaded as a whole."""

from __future__ import annotations

import pytest

from gbwatt.clinical.corpora import build
from gbwatt.data import MissingFileError, find_dataset, load
from gbwatt.data.datasets import subjects_here
from gbwatt.errors import ParameterError
from tests.clinical.corpora.synthetic import write_tuab


@pytest.fixture
def root(tmp_path):
    raw = write_tuab(tmp_path / "raw", train=1, evaluation=1, seconds=10.0)
    build(raw, tmp_path / "tuab", corpus="tuab", montage="bipolar16")
    return tmp_path


def test_a_corpus_is_found_by_its_cache(root):
    assert subjects_here(find_dataset("tuab"), root) == [1]
    assert subjects_here(find_dataset("tuev"), root) == []


def test_it_is_not_loaded_as_a_whole(root):
    with pytest.raises(ParameterError, match=r"tuab does not fit.*Corpus\.open\('.*tuab'\).*gbwatt finetune"):
        load("tuab", root=root)


def test_its_protocol_is_not_for_trials():
    protocol = find_dataset("tuev").protocol
    assert protocol.describe() == {"protocol": "OfficialEvaluation", "valid_fraction": 0.2}
    with pytest.raises(ParameterError, match=r"Corpus\.part"):
        protocol.splits(None)


def test_without_a_cache_it_is_said_where_to_get_it_and_how_to_make_one(tmp_path):
    with pytest.raises(MissingFileError, match=r"manifest\.jsonl(.|\n)*gbwatt corpus build"):
        load("tuev", root=tmp_path)

"""What was planted, subject by subject."""

from __future__ import annotations

import json

import pytest

from gbwatt.data.trials import Trials, Truth, concatenate
from gbwatt.errors import MismatchError, ParameterError
from tests.data.test_trials import OTHER, TRUTH, make


def test_truth_survives_json():
    assert Truth.from_dict(json.loads(json.dumps(TRUTH.to_dict()))) == TRUTH


def two() -> Trials:
    return concatenate([make(subject=1, truths={1: TRUTH}), make(subject=2, truths={2: OTHER})])


def test_several_subjects_have_a_truth_each():
    assert two().truths == {1: TRUTH, 2: OTHER}
    assert two().truth is None  # there is none of all
    assert (make(truths={1: TRUTH}).truth, make().truth) == (TRUTH, None)


def test_a_selection_has_the_truths_of_the_subjects_left():
    assert two().select(subject=2).truth == OTHER
    assert two()[:3].truths == {1: TRUTH}
    assert two()[6:9].truths == {1: TRUTH, 2: OTHER}
    assert two()[:0].truths == {}


def test_the_truth_of_some_subjects_is_not_taken_for_that_of_all():
    mixed = concatenate([make(subject=1, truths={1: TRUTH}), make(subject=2)])
    assert (mixed.truths, mixed.truth) == ({1: TRUTH}, None)
    assert mixed.select(subject=2).truth is None


@pytest.mark.parametrize("truths", [{1: OTHER}, {}])
def test_two_truths_of_one_subject_are_an_error(truths):
    with pytest.raises(MismatchError, match=r"parts\[1\] has another truth of subject 1"):
        concatenate([make(truths={1: TRUTH}), make(truths=truths)])


def test_the_truth_of_a_subject_that_is_not_there_is_an_error():
    with pytest.raises(ParameterError, match=r"truths has subject 2, but the trials are of \[1\]"):
        make(truths={2: TRUTH})


def test_the_truths_of_several_subjects_are_described():
    lines = two().describe().truth
    assert lines[0] == "subject 1: difficulty=0.5 seed=3"
    assert lines[2] == "subject 2: difficulty=0.5 seed=4"
    assert lines[3].startswith("subject 2: left: desynchronisation at C4")
    assert all(line in str(two().describe()) for line in lines)

"""Protocols: sizes of the paper, and no way for a test trial into training."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbwatt.clinical.corpora import cache
from gbwatt.data.splits import (
    PROTOCOLS,
    BySession,
    BySubject,
    HeldOutSession,
    InOrder,
    LeaveOneRoundOut,
    LeaveOneSessionOut,
    LeaveOneSubjectOut,
    Split,
    Splitter,
    add_noise,
    consecutive_folds,
    find_protocol,
)
from gbwatt.data.trials import Trials, concatenate
from gbwatt.errors import ParameterError, RareClassWarning, ShapeError

ROUNDS = (("4", "6"), ("8", "10"), ("12", "14"))


def make(y, session="1", run="1", subject=1, group=None, n_classes=None) -> Trials:
    y = np.asarray(y)
    x = np.arange(len(y), dtype=float)[:, None, None] * np.ones((1, 1, 2))  # a trial is its number
    grouping = {} if group is None else {"group": group}
    names = [f"class {c}" for c in range(n_classes or int(y.max()) + 1)]
    return Trials(
        X=x, y=y, class_names=names, ch_names=["Cz"], sfreq=100, session=session, run=run, subject=subject, **grouping
    )


def mamem_like(subject: int = 1) -> Trials:
    y = np.tile(np.repeat(np.arange(25) % 5, 4), 5)
    return make(y, session=np.repeat(list("12345"), 100), subject=subject, group=np.arange(500) // 4)


def bcic_like() -> Trials:
    y = np.tile(np.random.default_rng(0).permutation(np.repeat(np.arange(4), 72)), 2)
    return make(y, session=np.repeat(["T", "E"], 288))


def physionet_like() -> Trials:
    run = np.repeat(["4", "6", "8", "10", "12", "14"], 16)
    hands = np.isin(run, ["4", "8", "12"])
    y = np.where(hands, np.arange(96) % 2, 2 + np.arange(96) % 2)
    return make(y, run=run)


CASES = {
    BySession: (BySession(), mamem_like),
    HeldOutSession: (HeldOutSession(), bcic_like),
    LeaveOneRoundOut: (LeaveOneRoundOut(ROUNDS), physionet_like),
    LeaveOneSubjectOut: (LeaveOneSubjectOut(), lambda: concatenate([mamem_like(s) for s in (1, 2, 3, 5)])),
    LeaveOneSessionOut: (LeaveOneSessionOut(), mamem_like),
    BySubject: (BySubject((1, 3), (2, 5)), lambda: concatenate([mamem_like(s) for s in (1, 2, 3, 5)])),
    InOrder: (InOrder(), mamem_like),
}


def test_every_protocol_has_a_case():
    assert set(Splitter.__subclasses__()) == {
        *CASES,
        cache.OfficialEvaluation,
    }  # which is for corpora, not for trials


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_no_trial_and_no_group_is_on_two_sides(kind):
    protocol, trials = CASES[kind][0], CASES[kind][1]()
    splits = list(protocol.splits(trials))
    assert splits
    for split in splits:
        parts = [split.train, split.valid, split.test]
        assert all(len(part) for part in parts)
        everything = np.concatenate(parts)
        assert len(np.unique(everything)) == len(everything)
        groups = [set(trials.group[part]) for part in parts]
        assert not groups[0] & groups[1]
        assert not groups[0] & groups[2]
        assert not groups[1] & groups[2]
        assert set(trials.y[split.train]) == set(trials.y)


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_a_protocol_describes_itself(kind):
    description = CASES[kind][0].describe()
    assert description["protocol"] == kind.__name__
    assert len(description) > 1


# ---- sizes


def test_sessions_give_300_100_100():
    (split,) = BySession().splits(mamem_like())
    assert [len(split.train), len(split.valid), len(split.test)] == [300, 100, 100]
    assert split.test.tolist() == list(range(400, 500))


def test_a_held_out_session_gives_252_36_288_with_the_last_of_each_class():
    trials = bcic_like()
    (split,) = HeldOutSession().splits(trials)
    assert [len(split.train), len(split.valid), len(split.test)] == [252, 36, 288]
    for c in range(4):
        train, valid = (part[trials.y[part] == c] for part in (split.train, split.valid))
        assert len(valid) == 9
        assert train.max() < valid.min()
    assert (trials.session[split.test] == "E").all()


def test_each_round_is_tested_once_with_all_classes():
    trials = physionet_like()
    splits = list(LeaveOneRoundOut(ROUNDS).splits(trials))
    assert sorted(np.concatenate([split.test for split in splits])) == list(range(96))
    for split, runs in zip(splits, ROUNDS, strict=True):
        assert set(trials.run[split.test]) == set(runs)
        assert set(trials.y[split.test]) == {0, 1, 2, 3}


def test_each_subject_is_tested_once_and_validated_on_others():
    trials = CASES[LeaveOneSubjectOut][1]()
    splits = list(LeaveOneSubjectOut(n_valid=2).splits(trials))
    assert [set(trials.subject[split.test]) for split in splits] == [{1}, {2}, {3}, {5}]
    assert set(trials.subject[splits[-1].valid]) == {1, 2}
    assert set(trials.subject[splits[-1].train]) == {3}


def test_in_order_keeps_time():
    trials = make(np.tile([0, 1], 40))
    (split,) = InOrder(valid=0.1, test=0.3).splits(trials)
    assert [len(split.train), len(split.valid), len(split.test)] == [48, 8, 24]
    assert split.train.max() < split.valid.min()
    assert split.valid.max() < split.test.min()


def test_several_subjects_give_a_split_each():
    trials = concatenate([mamem_like(1), mamem_like(4)])
    first, second = BySession().splits(trials)
    assert set(trials.subject[first.train]) == set(trials.subject[first.test]) == {1}
    assert set(trials.subject[second.train]) == set(trials.subject[second.test]) == {4}


# ---- what cannot be made


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_a_split_with_a_shared_trial_cannot_be_made(data):
    n = data.draw(st.integers(4, 20))
    order = data.draw(st.permutations(range(n)))
    a, b = sorted(data.draw(st.lists(st.integers(1, n - 1), min_size=2, max_size=2, unique=True)))
    parts = [list(order[:a]), list(order[a:b]), list(order[b:])]
    Split("fine", *map(np.array, parts), groups=np.arange(n))
    one, other = data.draw(st.sampled_from([(0, 1), (0, 2), (1, 2)]))
    parts[one].append(parts[other][0])
    with pytest.raises(ParameterError, match="both"):
        Split("leaky", *map(np.array, parts), groups=np.arange(n))


def test_a_split_that_divides_a_group_cannot_be_made():
    with pytest.raises(ParameterError, match="group 1 has trials in both train and test"):
        Split("leaky", np.array([0, 2]), np.array([]), np.array([3, 4]), groups=np.array([0, 0, 1, 1, 2]))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([0], [1], []), "test is empty"),
        (([], [1], [2]), "train is empty"),
        (([0], [1], [7]), "0 to 2"),
        (([-1], [1], [2]), "0 to 2"),
        (([0, 0], [1], [2]), "twice"),
    ],
)
def test_wrong_numbers_are_refused(parts, message):
    with pytest.raises(ParameterError, match=message):
        Split("s", *(np.array(part, dtype=int) for part in parts), groups=np.arange(3))


def test_a_split_is_shown_by_its_sizes():
    (split,) = BySession().splits(mamem_like())
    assert repr(split) == "<Split subject 1, session 5: train 300, valid 100, test 100>"
    with pytest.raises(ShapeError, match="10 labels, but the split has 500"):
        split.limited(mamem_like().y[:10], 0.5)


def test_parts_of_a_split_cannot_be_written():
    (split,) = BySession().splits(mamem_like())
    with pytest.raises(ValueError, match="read-only"):
        split.train[0] = split.test[0]


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (BySession(test=("6",)), "no session '6', only '1'"),
        (HeldOutSession(), "no session 'T'"),
        (LeaveOneSubjectOut(), "at least 3 subjects"),
        (LeaveOneRoundOut(ROUNDS), "no run '4', only '1'"),
    ],
)
def test_trials_that_a_protocol_does_not_fit_are_refused(protocol, message):
    with pytest.raises(ParameterError, match=message):
        list(protocol.splits(mamem_like()))


# ---- limited data


def test_a_fraction_of_training_is_stratified_nested_and_leaves_the_rest():
    trials = bcic_like()
    (split,) = HeldOutSession().splits(trials)
    half, most = (split.limited(trials.y, fraction, seed=3) for fraction in (0.5, 0.9))
    for part, fraction in ((half, 0.5), (most, 0.9)):
        assert np.bincount(trials.y[part.train]).tolist() == [round(63 * fraction)] * 4
        assert part.valid.tolist() == split.valid.tolist()
        assert part.test.tolist() == split.test.tolist()
        assert set(part.train) <= set(split.train)
    assert set(half.train) < set(most.train)
    assert set(split.limited(trials.y, 0.5, seed=4).train) != set(half.train)
    assert split.limited(trials.y, 1.0).train.tolist() == split.train.tolist()


@pytest.mark.parametrize("fraction", [0, -0.5, 1.5, float("nan")])
def test_a_wrong_fraction_is_refused(fraction):
    (split,) = BySession().splits(mamem_like())
    with pytest.raises(ParameterError, match="fraction"):
        split.limited(mamem_like().y, fraction)


# ---- noise


@given(
    st.integers(2, 4),
    st.lists(st.integers(0, 2), min_size=0, max_size=30),
    st.integers(1, 3),
)
@settings(max_examples=50, deadline=None)
def test_folds_are_a_partition_that_divides_no_group_and_has_all_classes(n, classes, size):
    y = np.repeat([*[0, 1] * n, *classes, *([2] * n if 2 in classes else [])], size)  # enough groups of each class
    trials = make(y, group=np.arange(len(y)) // size, n_classes=3)
    folds = consecutive_folds(trials, n)
    assert len(folds) == n
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == list(range(len(y)))
    for train, test in folds:
        assert sorted([*train, *test]) == list(range(len(y)))
        assert not set(trials.group[train]) & set(trials.group[test])
        assert set(y[train]) == set(y[test]) == set(y)


def test_folds_are_consecutive_in_each_class():
    folds = consecutive_folds(make([0, 1, 0, 1, 0, 1, 0, 1]), 2)
    assert [test.tolist() for _, test in folds] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_group_of_several_classes_is_in_one_fold():
    folds = consecutive_folds(make([0, 1, 0, 1, 0, 1], group=[0, 0, 1, 1, 2, 2]), 3)
    assert [test.tolist() for _, test in folds] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("n", [1, 0, -1, 2.5, "3"])
def test_a_wrong_number_of_folds_is_refused(n):
    with pytest.raises(ParameterError, match="folds="):
        consecutive_folds(make([0, 1] * 6), n)


def test_more_folds_than_groups_are_refused():
    with pytest.raises(ParameterError, match=r"folds=3: class 'class 1' has 2 trials or groups"):
        consecutive_folds(make([0, 0, 0, 1, 1], group=[0, 1, 2, 3, 4]), 3)


def test_noise_has_its_variance_and_keeps_labels():
    trials = make(np.tile([0, 1], 500))
    noisy = add_noise(trials, variance=0.4, seed=2)
    added = noisy.X - trials.X
    assert added.var() == pytest.approx(0.4, rel=0.1)
    assert abs(added.mean()) < 0.05
    assert (noisy.y == trials.y).all()
    assert (add_noise(trials, 0.4, seed=2).X == noisy.X).all()
    assert (add_noise(trials, 0.4, seed=3).X != noisy.X).any()
    assert noisy.steps[-1]["variance"] == 0.4
    assert trials.steps == ()


def test_noise_is_added_before_or_after_a_selection():
    trials = bcic_like()
    rows = np.flatnonzero(trials.session == "E")[::3]
    np.testing.assert_array_equal(add_noise(trials[rows], 2.0).X, add_noise(trials, 2.0)[rows].X)


def test_noise_of_training_and_test_tells_nothing_about_labels():
    rng = np.random.default_rng(0)
    trials = make(np.tile(np.arange(40) % 4, 2), session=np.repeat(["T", "E"], 40)).replace(
        X=rng.standard_normal((80, 1, 100)) * 1e-3
    )
    train, test = (trials.select(session=session) for session in "TE")  # labels are in the same order in both
    noise = [(add_noise(part, 1.0).X - part.X)[:, 0] for part in (train, test)]
    assert abs(np.corrcoef(*noise)[:40, 40:]).max() < 0.5
    nearest = ((noise[1][:, None] - noise[0]) ** 2).sum(-1).argmin(1)
    assert np.mean(train.y[nearest] == test.y) < 0.6  # of chance at 0.25


def test_negative_variance_is_refused():
    with pytest.raises(ParameterError, match="variance"):
        add_noise(mamem_like(), -1.0)


# ---- parameters


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InOrder(valid=0.9, test=0.5), "below 1, or no trials are left for training"),
        (lambda: InOrder(test=1.0), "test=1.0 must be a fraction"),
        (lambda: InOrder(test=0), "no trials for the test"),
        (lambda: HeldOutSession(valid=-0.1), "valid=-0.1"),
        (lambda: LeaveOneRoundOut(ROUNDS, valid=float("nan")), "valid=nan"),
        (lambda: LeaveOneSubjectOut(n_valid=-1), "n_valid=-1"),
    ],
)
def test_wrong_parameters_of_a_protocol_are_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_a_small_class_is_in_every_part_or_refused():
    (split,) = InOrder().splits(make([0, 1, 0, 1, 0, 1, 0, 1]))
    assert [len(split.train), len(split.valid), len(split.test)] == [4, 2, 2]
    with pytest.raises(ParameterError, match=r"class 'class 1' has a single trial or group; .* two"):
        list(InOrder().splits(make([0, 0, 0, 0, 0, 1])))


def test_validation_can_be_left_out():
    (split,) = InOrder(valid=0).splits(make(np.tile([0, 1], 8)))
    assert len(split.valid) == 0
    assert len(split.test) == 4


def test_a_class_with_one_trial_stays_in_the_training_with_a_warning():
    n = 24
    trials = Trials(X=np.zeros((n, 1, 4)), y=[2, *([0, 1] * n)[: n - 1]], class_names="abc", ch_names=["Oz"], sfreq=100)
    with pytest.warns(RareClassWarning, match="'c'"):
        (split,) = InOrder().splits(trials)
    assert 0 in split.train
    assert set(trials.y[split.test]) == set(trials.y[split.valid]) == {0, 1}
    with pytest.raises(ParameterError, match="'a', 'b' has a single trial"):
        InOrder().splits(trials[np.array([1, 2])])


# ---- several subjects, and protocols by name


def test_pooled_splits_unite_those_of_the_subjects():
    trials = concatenate([mamem_like(s) for s in (1, 2)])
    (pooled,) = BySession().pooled(trials)
    each = BySession().splits(trials)
    for part in ("train", "valid", "test"):
        rows = np.concatenate([getattr(one, part) for one in each])
        np.testing.assert_array_equal(getattr(pooled, part), np.sort(rows))
    assert pooled.name == "subjects 1-2, session 5"
    assert [one.name for one in LeaveOneSubjectOut(0).pooled(trials)] == ["subject 1", "subject 2"]


def test_subjects_with_different_numbers_of_sessions_are_not_pooled():
    short = mamem_like(2)
    trials = concatenate([mamem_like(1), short[short.session != "5"]])
    with pytest.raises(ParameterError, match=r"different numbers of splits: 5 \(subject 1\), 4 \(subject 2\)"):
        LeaveOneSessionOut().pooled(trials)


def test_each_session_is_tested_once():
    trials = mamem_like()
    tested = [set(trials.session[split.test].tolist()) for split in LeaveOneSessionOut().splits(trials)]
    assert tested == [{"1"}, {"2"}, {"3"}, {"4"}, {"5"}]
    with pytest.raises(ParameterError, match="subject 1 has one session, '1'"):
        LeaveOneSessionOut().splits(make([0, 1] * 8))


@pytest.mark.parametrize("protocol", [case[0] for case in CASES.values()], ids=lambda one: type(one).__name__)
def test_protocols_are_restored_from_their_description(protocol):
    assert find_protocol(json.loads(json.dumps(protocol.describe()))) == protocol


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_have_names(name):
    assert find_protocol(name) == PROTOCOLS[name]()

"""The online decoder: its decisions are those for the recorded file, and bad input is noticed."""

from __future__ import annotations

import tracemalloc

import mne
import numpy as np
import pytest

from gbwatt.data import load
from gbwatt.decoding import EEGDecoder, predict_recordings
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.online import Evidence, OnlineDecoder
from tests.decoding.test_prediction import CHANNELS, READING, SFREQ, recording, saved

CAUSAL = {**READING, "preprocessing": "bandpass=8-30,resample=100,crop=0.5:1.5,causal"}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    file = saved(recording(), tmp_path_factory.mktemp("train"))
    return EEGDecoder("tangent-space").fit(load(file, **CAUSAL))


def stream_of(raw: mne.io.BaseRaw) -> np.ndarray:
    return raw.get_data() * 1e6


def play(online: OnlineDecoder, raw: mne.io.BaseRaw, size: int, marks: bool = False, delay: float = 0.0) -> list:
    """Push a recording in chunks, and its annotations when they have happened, or some seconds later."""
    x, times = stream_of(raw), np.arange(raw.n_times) / raw.info["sfreq"]
    notes = list(zip(raw.annotations.onset, raw.annotations.description, strict=True)) if marks else []
    decisions = []
    for start in range(0, x.shape[1], size):
        decisions += online.push(x[:, start : start + size], times[start : start + size])
        while notes and notes[0][0] + delay <= times[min(start + size, x.shape[1]) - 1]:
            decisions += online.mark(*notes.pop(0))
    return decisions


@pytest.mark.parametrize("size", [1, 10, 50, 333, 10**6])
@pytest.mark.parametrize("hop", [0.1, 0.25, 0.035])
def test_sliding_windows_get_the_probabilities_of_the_recorded_file(decoder, size, hop):
    raw = recording(1)
    offline = predict_recordings(decoder, raw, hop=hop)
    decisions = play(OnlineDecoder(decoder, SFREQ, CHANNELS, hop=hop), raw, size)
    np.testing.assert_allclose([d.probabilities for d in decisions], offline.probabilities, atol=1e-5)
    np.testing.assert_allclose([d.time for d in decisions], offline.time, atol=1e-9)
    assert [d.label for d in decisions] == offline.names.tolist()
    assert all(d.reliable and d.event == "" and round(d.end - d.time, 6) == 0.99 for d in decisions)


@pytest.mark.parametrize("delay", [0.0, 1.3, 4.0])
@pytest.mark.parametrize("size", [1, 10, 50])
def test_windows_of_events_get_the_probabilities_of_the_recorded_file(decoder, size, delay):
    raw = recording(1)
    offline = predict_recordings(decoder, raw)
    decisions = play(OnlineDecoder(decoder, SFREQ, CHANNELS), raw, size, marks=True, delay=delay)
    assert len(decisions) == len(offline) == 12 if delay < 3 else len(decisions) >= 11
    np.testing.assert_allclose([d.probabilities for d in decisions], offline.probabilities[: len(decisions)], atol=1e-5)
    np.testing.assert_allclose([d.time for d in decisions], offline.time[: len(decisions)], atol=1e-9)
    assert [d.event for d in decisions] == offline.event[: len(decisions)].tolist()


@pytest.mark.parametrize("shift", [0.005, 0.015, 0.0049, 0.0051])
def test_events_between_two_samples_after_resampling_belong_to_the_same_one(decoder, shift):
    raw = recording(1)
    notes = raw.annotations.copy()
    notes.onset = notes.onset + shift
    raw.set_annotations(notes)
    decisions = play(OnlineDecoder(decoder, SFREQ, CHANNELS), raw, 50, marks=True)
    np.testing.assert_allclose(
        [d.probabilities for d in decisions], predict_recordings(decoder, raw).probabilities, atol=1e-5
    )


def test_other_rates_and_units_and_orders_of_channels_give_the_same_decisions(decoder):
    raw = recording(1)
    expected = play(OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5), raw, 40)
    x, order = raw.get_data(), [2, 0, 3, 1]
    names = [("c3", "Cz.", "C4", "Pz")[place] for place in order]
    online = OnlineDecoder(decoder, SFREQ, ["EEG 1", *names], unit="V", hop=0.5, rename={"EEG 1": "Fz"})
    decisions = online.push(np.concatenate([x[:1], x[order]]))
    np.testing.assert_allclose([d.probabilities for d in decisions], [d.probabilities for d in expected], atol=1e-5)


def test_two_swapped_channels_are_found_by_name(decoder):
    raw = recording(1)
    expected = play(OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5), raw, 40)
    x = stream_of(raw)[[2, 1, 0, 3]]
    by_name = OnlineDecoder(decoder, SFREQ, ["C4", "Cz", "C3", "Pz"], hop=0.5).push(x)
    np.testing.assert_allclose([d.probabilities for d in by_name], [d.probabilities for d in expected], atol=1e-5)


def test_pseudo_online_accuracy_is_the_offline_accuracy(decoder):
    raw = recording(4, n=20)
    truth = {"T1": "left", "T2": "right"}
    offline = predict_recordings(decoder, raw)
    online = play(OnlineDecoder(decoder, SFREQ, CHANNELS), raw, 10, marks=True)
    assert np.mean([d.label == truth[d.event] for d in online]) == np.mean(
        offline.names == np.array([truth[event] for event in offline.event])
    )
    assert np.mean([d.label == truth[d.event] for d in online]) > 0.8


# ---- streams with faults


def test_after_a_gap_windows_and_filters_start_anew(decoder):
    raw = recording(1)
    x, times = stream_of(raw), np.arange(raw.n_times) / SFREQ
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5)
    before = online.push(x[:, :1000], times[:1000])
    after = online.push(x[:, 1000:], times[1000:] + 7.0)
    assert online.counts.gaps == 1
    assert all(d.end <= times[999] for d in before)
    fresh = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5).push(x[:, 1000:], times[1000:] + 7.0)
    np.testing.assert_array_equal([d.probabilities for d in after], [d.probabilities for d in fresh])
    assert [d.time for d in after] == [d.time for d in fresh]


def test_a_gap_within_a_chunk_and_a_clock_that_jumps_back_are_gaps(decoder):
    x, times = np.random.default_rng(0).standard_normal((4, 900)), np.arange(900) / SFREQ
    times[300:] += 1.0
    times[600:] -= 5.0
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5)
    decisions = online.push(x, times)
    assert online.counts.gaps == 2
    assert all(abs(d.end - d.time - 0.99) < 1e-6 for d in decisions), "no window spans a gap"


def test_jitter_of_time_stamps_is_no_gap(decoder):
    raw = recording(1)
    jitter = np.random.default_rng(0).uniform(-0.04, 0.04, raw.n_times)
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5)
    decisions = online.push(stream_of(raw), np.arange(raw.n_times) / SFREQ + jitter)
    assert online.counts.gaps == 0
    offline = predict_recordings(decoder, raw, hop=0.5)
    np.testing.assert_allclose([d.probabilities for d in decisions], offline.probabilities, atol=1e-5)


def test_windows_with_missing_samples_are_unreliable_and_others_are_not(decoder):
    raw = recording(1)
    x = stream_of(raw)
    x[0, 1000:1010] = np.nan
    x[1, 1005] = np.inf
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5)
    decisions = [d for start in range(0, x.shape[1], 7) for d in online.push(x[:, start : start + 7])]
    marked = [d for d in decisions if not d.reliable]
    assert {d.problems for d in marked} == {("NaN samples in C3, Cz",)}
    assert all(d.time <= 1010 / SFREQ and d.end >= 1000 / SFREQ - 0.02 for d in marked)
    assert len(marked) == online.counts.unreliable == 2
    assert np.isfinite([d.probabilities for d in decisions]).all()


def test_the_first_samples_may_be_missing(decoder):
    x = stream_of(recording(1))
    x[2, :5] = np.nan
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5)
    first, *others = [d for start in range(0, 3000, 3) for d in online.push(x[:, start : start + 3])]
    assert first.problems == ("NaN samples in C4",)
    assert all(d.reliable for d in others)


def test_a_flat_channel_is_a_problem(decoder):
    x = stream_of(recording(1))
    x[3, 1000:1500] = x[3, 999]
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.25)
    decisions = [d for start in range(0, x.shape[1], 50) for d in online.push(x[:, start : start + 50])]
    flat = [d for d in decisions if d.problems == ("flat: Pz",)]
    assert flat
    assert all(d.time >= 4.99 and d.end <= 7.5 for d in flat)
    assert all(d.reliable for d in decisions if d.end < 5.0 or d.time > 7.5)


def test_an_event_without_samples_is_counted(decoder):
    raw = recording(1)
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, history=1.0)
    x, times = stream_of(raw), np.arange(raw.n_times) / SFREQ
    for start in range(0, 3000, 100):
        online.push(x[:, start : start + 100], times[start : start + 100])
    assert online.mark(2.0, "T1") == []
    assert online.counts.lost_events == 1
    assert online.mark(14.9, "T2") == []
    online.push(x[:, 3000:], times[3000:] + 60)  # a gap within its window
    assert online.counts.lost_events == 2
    assert online.counts.gaps == 1


def test_memory_does_not_grow(decoder):
    online = OnlineDecoder(decoder, SFREQ, CHANNELS)
    x = np.random.default_rng(0).standard_normal((4, 200))

    def minutes(n: int) -> int:
        for _ in range(60 * n):
            online.push(x, (online.counts.samples + np.arange(200)) / SFREQ)
            online.mark(online.counts.samples / SFREQ, "another")
        return tracemalloc.get_traced_memory()[0]

    online._event_names = ("T1",)
    tracemalloc.start()
    try:
        first = minutes(1)
        assert minutes(10) < first + 50_000
    finally:
        tracemalloc.stop()


def test_a_reset_forgets_samples_and_events_but_not_the_counts(decoder):
    x = stream_of(recording(1))
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5)
    online.push(x[:, :1000], np.arange(1000) / SFREQ)
    online.reset()
    after = online.push(x[:, 1000:], 50 + np.arange(x.shape[1] - 1000) / SFREQ)
    fresh = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5).push(x[:, 1000:])
    np.testing.assert_array_equal([d.probabilities for d in after], [d.probabilities for d in fresh])
    assert (online.counts.gaps, online.counts.samples) == (0, x.shape[1])


# ---- evidence and adaptation


def test_evidence_of_successive_windows_is_combined(decoder):
    raw = recording(1)
    single = play(OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5), raw, 50)
    evidence = Evidence(n_windows=3, weight=0.5, threshold=0.9)
    combined = play(OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5, evidence=evidence), raw, 50)
    for place, decision in enumerate(combined):
        last = np.stack([d.probabilities for d in single[max(0, place - 2) : place + 1]])
        np.testing.assert_allclose(decision.probabilities, evidence.combine(last), rtol=1e-9)
        assert (decision.label is None) == (decision.probabilities.max() < 0.9)
    assert {d.label for d in combined} == {"left", "right", None}


def test_evidence_of_the_windows_of_an_event_begins_with_the_event(decoder):
    raw = recording(1)
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.25, events=["T1"], evidence=Evidence(n_windows=3))
    decisions = play(online, raw, 50, marks=True)
    assert len(decisions) == 6 * 3
    assert {d.event for d in decisions} == {"T1"}
    alone = predict_recordings(decoder, raw, events=["T1"])
    np.testing.assert_allclose([d.probabilities for d in decisions[::3]], alone.probabilities, atol=1e-5)


def test_a_gap_ends_the_combination_of_windows(decoder):
    x = stream_of(recording(1))
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5, evidence=Evidence(n_windows=4))
    online.push(x[:, :1000], np.arange(1000) / SFREQ)
    (first, *_) = online.push(x[:, 1000:], np.arange(1000, x.shape[1]) / SFREQ + 2)
    (alone, *_) = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5).push(x[:, 1000:])
    np.testing.assert_allclose(first.probabilities, alone.probabilities, rtol=1e-9)


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aligned")
    files = {number: saved(recording(number, n=20), folder, f"s{number}_raw.fif") for number in (1, 2)}
    return EEGDecoder("tangent-space", alignment="euclidean").fit(load(files, **CAUSAL))


def test_a_known_domain_gives_the_probabilities_of_the_recorded_file(aligned):
    raw = recording(5)
    offline = predict_recordings(aligned, raw, hop=0.5, group=2)
    decisions = play(OnlineDecoder(aligned, SFREQ, CHANNELS, hop=0.5, group=2), raw, 50)
    np.testing.assert_allclose([d.probabilities for d in decisions], offline.probabilities, atol=1e-5)


def test_adaptation_follows_another_subject_without_labels(aligned):
    raw = recording(6, n=40)
    mixed = np.array([[5, 2, 0, 0], [0, 3, 0, 1], [1, 0, 5, 0], [0, 0, 1, 2]]) @ stream_of(raw)  # other electrodes
    times, truth = np.arange(raw.n_times) / SFREQ, {"T1": "left", "T2": "right"}
    online = OnlineDecoder(aligned, SFREQ, CHANNELS, adapt=True, history=300)
    online.push(mixed, times)
    decisions = [d for note in raw.annotations for d in online.mark(note["onset"], note["description"])]
    assert [d.problems for d in decisions[:4]] == [(f"adaptation has {n} of 5 windows",) for n in (1, 2, 3, 4)]
    assert np.mean([d.label == truth[d.event] for d in decisions[8:]]) > 0.8
    assert aligned.domains_.names == [1, 2], "the decoder that was given is unchanged"


def test_models_with_domains_need_one(aligned, decoder):
    with pytest.raises(ParameterError, match="needs group=, one of 1, 2; or adapt=True"):
        OnlineDecoder(aligned, SFREQ, CHANNELS, hop=0.5)
    with pytest.raises(ParameterError, match="group='3' is not known"):
        OnlineDecoder(aligned, SFREQ, CHANNELS, hop=0.5, group=3)
    with pytest.raises(ParameterError, match="neither alignment nor domain_norm"):
        OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5, adapt=True)


# ---- models and streams that do not fit


def test_a_zero_phase_chain_is_refused_with_the_remedy(tmp_path):
    model = EEGDecoder("tangent-space").fit(load(saved(recording(), tmp_path), **READING))
    with pytest.raises(ParameterError, match=r"zero-phase.*needs later samples.*causal=True.*--preprocess"):
        OnlineDecoder(model, SFREQ, CHANNELS, hop=0.5)


def test_recordings_that_were_filtered_before_are_refused(tmp_path):
    raw = recording().filter(8, 30, verbose="ERROR")
    model = EEGDecoder("tangent-space").fit(load(saved(raw, tmp_path), **{**READING, "preprocessing": None}))
    with pytest.raises(ParameterError, match="were filtered from 8 to 30 Hz before they were read"):
        OnlineDecoder(model, SFREQ, CHANNELS, hop=0.5)


def test_a_model_of_arrays_is_refused():
    x = np.random.default_rng(0).standard_normal((20, 4, 100))
    with pytest.raises(ParameterError, match="trained on arrays"):
        OnlineDecoder(EEGDecoder("tangent-space").fit(x, np.arange(20) % 2), SFREQ, CHANNELS, hop=0.5)


def test_a_saved_model_is_read_from_its_folder(decoder, tmp_path):
    decoder.save_pretrained(tmp_path / "model")
    raw = recording(1)
    expected = play(OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5), raw, 50)
    decisions = play(OnlineDecoder(tmp_path / "model", SFREQ, CHANNELS, hop=0.5), raw, 50)
    np.testing.assert_array_equal([d.probabilities for d in decisions], [d.probabilities for d in expected])


def test_missing_channels_are_named_with_the_remedy(decoder):
    with pytest.raises(ParameterError, match=r"Pz not found among the 4 channels.*E1.*rename"):
        OnlineDecoder(decoder, SFREQ, ["C3", "Cz", "C4", "E1"], hop=0.5)
    with pytest.raises(ParameterError, match="rename='E2' is not known"):
        OnlineDecoder(decoder, SFREQ, ["C3", "Cz", "C4", "E1"], hop=0.5, rename={"E2": "Pz"})


def test_another_rate_needs_resampling(tmp_path):
    reading = {**READING, "preprocessing": "bandpass=8-30,causal"}
    model = EEGDecoder("tangent-space").fit(load(saved(recording(), tmp_path), **reading))
    with pytest.raises(ParameterError, match="sfreq=400 Hz, but the model was trained on 200 Hz; set resample=True"):
        OnlineDecoder(model, 400, CHANNELS, hop=0.5)
    raw = recording(7, sfreq=400.0, n=20)
    decisions = play(OnlineDecoder(model, 400, CHANNELS, resample=True), raw, 50, marks=True)
    assert np.mean([d.label == {"T1": "left", "T2": "right"}[d.event] for d in decisions]) > 0.8


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"hop": 0.0}, "at least one sample"),
        ({"hop": 0.5, "unit": "kV"}, "unit='kV' is not known"),
        ({"hop": 0.5, "max_gap": 0}, "max_gap"),
        ({"evidence": Evidence(n_windows=2)}, "hop is needed"),
    ],
)
def test_wrong_arguments_are_named(decoder, arguments, message):
    with pytest.raises(ParameterError, match=message):
        OnlineDecoder(decoder, SFREQ, CHANNELS, **arguments)


def test_wrong_chunks_are_named(decoder):
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5)
    with pytest.raises(ShapeError, match=r"\(3, 5\) is not \(4 channels, samples\)"):
        online.push(np.zeros((3, 5)))
    with pytest.raises(ShapeError, match="one time stamp for each sample"):
        online.push(np.zeros((4, 5)), np.arange(4))
    with pytest.raises(ParameterError, match="time stamps"):
        online.push(np.zeros((4, 2)), [0.0, np.nan])
    assert online.push(np.zeros((4, 0))) == []


def test_a_wrong_unit_is_a_problem_of_every_decision(decoder):
    decisions = play(OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5, unit="V"), recording(1), 50)
    assert {d.problems for d in decisions} == {
        ("amplitude differs from the training data by a factor above 100: check the unit",)
    }

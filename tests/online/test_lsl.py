"""Streams of the Lab Streaming Layer, played and decoded, in a network within this process."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from gbwatt import cli
from gbwatt.data import load, write_npz
from gbwatt.decoding import EEGDecoder, predict_recordings
from gbwatt.errors import MismatchError, MissingStreamError, PackageError, ParameterError
from gbwatt.online import OnlineDecoder, lsl, replay
from gbwatt.online.lsl import DecisionOutlet, StreamReader
from gbwatt.online.replay import Playback, Player
from gbwatt.online.session import Session
from tests.decoding.test_prediction import CHANNELS, SFREQ, recording, saved
from tests.online.fake_lsl import Network
from tests.online.test_decoder import CAUSAL


@pytest.fixture
def network(monkeypatch):
    network = Network()
    monkeypatch.setattr(lsl, "library", lambda: network)
    monkeypatch.setattr(replay, "library", lambda: network)
    monkeypatch.setattr(replay.time, "sleep", network.sleep)
    return network


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    file = saved(recording(), tmp_path_factory.mktemp("train"))
    return EEGDecoder("tangent-space").fit(load(file, **CAUSAL))


@pytest.fixture(scope="module")
def model(decoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    decoder.save_pretrained(folder)
    return folder


def run(session, steps=60):
    for _ in range(steps):
        session.step(wait=0.0)


def stream(network, name="amp", channels=CHANNELS, sfreq=SFREQ, **described):
    info = network.StreamInfo(name, "EEG", len(channels), sfreq, "float32", "x")
    info.set_channel_names(channels)
    for what, value in described.items():
        getattr(info, f"set_channel_{what}")(value)
    return network.StreamOutlet(info)


# ---- playing and decoding


@pytest.mark.parametrize("chunk", [1, 10, 50])
@pytest.mark.parametrize("delay", [0.0, 1.5])
def test_decisions_at_markers_are_the_predictions_for_the_file(network, decoder, chunk, delay):
    raw, found = recording(1), []
    player = Player(Playback.open(raw), "amp", chunk=chunk)
    reader = StreamReader("amp", "amp-markers")
    online = OnlineDecoder(decoder, reader.sfreq, reader.ch_names, unit=reader.unit)
    session = Session(online, reader, lambda decision, latency: found.append((decision, latency)))
    player.play(delay_of_markers=delay)
    run(session)
    offline = predict_recordings(decoder, raw)
    np.testing.assert_allclose([d.probabilities for d, _ in found], offline.probabilities, atol=1e-5)
    np.testing.assert_allclose([d.time - 100.0 for d, _ in found], offline.time, atol=1e-6)
    assert [d.event for d, _ in found] == offline.event.tolist()
    assert session.last is found[-1][0]
    assert len(session.latencies) == len(found)


def test_sliding_windows_are_the_predictions_for_the_file(network, decoder):
    raw, found = recording(1), []
    player, reader = Player(Playback.open(raw), "amp"), StreamReader("amp")
    online = OnlineDecoder(decoder, reader.sfreq, reader.ch_names, hop=0.25)
    player.play()
    run(Session(online, reader, lambda decision, _: found.append(decision), max_delay=1e6))
    np.testing.assert_allclose(
        [d.probabilities for d in found], predict_recordings(decoder, raw, hop=0.25).probabilities, atol=1e-5
    )


def test_a_session_that_is_late_decides_on_the_newest_window(network, decoder):
    player, reader = Player(Playback.open(recording(1)), "amp"), StreamReader("amp")
    online = OnlineDecoder(decoder, reader.sfreq, reader.ch_names, hop=0.25)
    session = Session(online, reader, lambda *_: None)
    player.play()
    network.now += 10.0
    run(session)
    assert online.counts.skipped > 100
    assert online.counts.decisions < 5


def test_the_clock_of_a_faster_player_advances_faster(network):
    playback = Playback.open(recording(1))
    player = Player(playback, "amp", speed=4.0)
    before = network.now
    player.play()
    assert network.now - before == pytest.approx(39.0 / 4, abs=0.1)
    stamps = [t for _, t in network.streams[0].sent]
    np.testing.assert_allclose(np.diff(stamps), 1 / SFREQ, atol=1e-9)


def test_trials_are_played_one_after_the_other(network, tmp_path):
    trials = load(saved(recording(), tmp_path), **CAUSAL)
    write_npz(trials.replace(tmin=0.0), tmp_path / "trials.npz")
    playback = Playback.open(tmp_path / "trials.npz")
    assert playback.samples.shape == (4, 12 * 100)
    np.testing.assert_array_equal(playback.samples[:, 100:200], trials.X[1])
    assert playback.events == [(float(n), trials.labels[n]) for n in range(12)]


# ---- streams that go away


def test_a_stream_that_returns_is_found_again(network, decoder):
    raw, found = recording(1), []
    x = (raw.get_data() * 1e6).T
    first = stream(network, units="microvolts")
    reader = StreamReader("amp")
    online = OnlineDecoder(decoder, reader.sfreq, reader.ch_names, hop=0.5)
    session = Session(online, reader, lambda decision, _: found.append(decision), max_delay=1e6)
    first.push_chunk(x[:1000], 100 + np.arange(1000) / SFREQ)
    run(session, 5)
    first.vanish()
    run(session, 3)
    assert not reader.connected
    second = stream(network, units="microvolts")
    second.push_chunk(x[1000:], 200 + np.arange(len(x) - 1000) / SFREQ)
    reader._next_attempt = 0.0
    run(session)
    assert reader.connected
    assert reader.reconnections == 1
    assert online.counts.gaps == 1
    assert {d.time >= 200 for d in found} == {False, True}


def test_another_stream_of_the_same_name_is_an_error(network):
    first = stream(network)
    reader = StreamReader("amp")
    first.vanish()
    reader.read(0.0)
    stream(network, channels=CHANNELS[:3])
    reader._next_attempt = 0.0
    with pytest.raises(MismatchError, match=r"has returned with 3 channels at 200 Hz .* the 4 at 200 Hz"):
        reader.read(0.0)


# ---- descriptions of streams


def test_only_eeg_channels_are_read(network):
    outlet = stream(network, channels=("C3", "TRIG", "C4"), types=["eeg", "stim", "EEG"], units=["uV", "none", "uV"])
    reader = StreamReader("amp")
    assert (reader.ch_names, reader.unit) == (("C3", "C4"), "µV")
    outlet.push_chunk(np.arange(6).reshape(2, 3), [1.0, 2.0])
    np.testing.assert_array_equal(reader.read(0.0).samples, [[0, 3], [2, 5]])


@pytest.mark.parametrize(
    ("units", "unit"), [("microvolts", "µV"), ("-6", "µV"), ("Volts", "V"), ("0", "V"), ("parsec", None)]
)
def test_the_unit_is_that_of_the_stream(network, units, unit):
    stream(network, units=units)
    assert StreamReader("amp").unit == unit


def test_channels_without_names_are_numbered(network):
    info = network.StreamInfo("amp", "EEG", 2, 100.0, "float32", "x")
    network.StreamOutlet(info)
    reader = StreamReader("amp")
    assert (reader.ch_names, reader.unit) == (("1", "2"), None)


def test_a_missing_stream_is_named_with_those_that_are_there(network):
    with pytest.raises(MissingStreamError, match="stream='amp' was not found within 1 s; no stream is there"):
        StreamReader("amp", timeout=1)
    stream(network, "other")
    with pytest.raises(MissingStreamError, match="the streams 'other' are there"):
        StreamReader("amp", timeout=1)


def test_streams_that_cannot_be_decoded_are_named(network):
    stream(network)
    stream(network)
    with pytest.raises(ParameterError, match="there are 2 streams of this name, from here"):
        StreamReader("amp")
    stream(network, "markers", sfreq=0.0)
    with pytest.raises(MismatchError, match="no regular sampling rate"):
        StreamReader("markers")
    stream(network, "gaze", types="gaze")
    with pytest.raises(MismatchError, match="no EEG channel; its types are gaze"):
        StreamReader("gaze")


def test_decisions_are_sent_as_numbers(network, decoder):
    outlet = DecisionOutlet("decisions", decoder.class_names_)
    raw = recording(1)
    online = OnlineDecoder(decoder, SFREQ, CHANNELS, hop=0.5)
    decisions = online.push(raw.get_data() * 1e6)
    for decision in decisions:
        outlet.send(decision)
    (sent,) = [one for one in network.streams if one.info.name == "decisions"]
    assert sent.info.get_channel_names() == ["class", "reliable", "p_left", "p_right"]
    values = np.array([x for x, _ in sent.sent])
    np.testing.assert_array_equal(values[:, 0], [decoder.class_names_.index(d.label) for d in decisions])
    np.testing.assert_array_equal(values[:, 1], 1.0)
    np.testing.assert_array_equal(values[:, 2:], [d.probabilities for d in decisions])
    assert [t for _, t in sent.sent] == [d.end for d in decisions]


def test_without_mne_lsl_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mne_lsl", None)
    monkeypatch.setitem(__import__("sys").modules, "mne_lsl.lsl", None)
    with pytest.raises(PackageError, match=re.escape("pip install 'gbwatt[lsl]'")):
        lsl.library()


# ---- command line


def command(*arguments):
    result = CliRunner().invoke(cli.app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    return result


def test_online_writes_and_sends_decisions(network, model, tmp_path):
    raw = recording(1)
    player = Player(Playback.open(raw), "amp")
    player.play()
    file = tmp_path / "decisions.csv"
    result = command(
        *("online", model, "--stream", "amp", "--markers", "amp-markers", "--output", "decisions"),
        *("--record", file, "--duration", "2"),
    )
    assert result.exit_code == 0, (result.output, result.exception)
    assert "12 decisions, 0 of them unreliable" in result.output
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    offline = predict_recordings(model, raw)
    assert [row["label"] for row in rows] == offline.names.tolist()
    assert [row["event"] for row in rows] == offline.event.tolist()
    np.testing.assert_allclose([float(row["p_left"]) for row in rows], offline.probabilities[:, 0], atol=1e-5)
    assert len(network.streams[-1].sent) == 12


def test_replay_plays_a_file(network, tmp_path):
    file = saved(recording(1), tmp_path)
    result = command("replay", file, "--name", "amp", "--speed", "10", "--chunk", "20")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "amp: 4 channels at 200 Hz, 39 s; amp-markers: 12 events" in result.output
    samples, markers = (one.sent for one in network.streams)
    assert len(samples) == recording(1).n_times
    assert [x for x, _ in markers] == [["T1"], ["T2"]] * 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --hop 0.5 for sliding windows, or --markers NAME"),
        (("--hop", "0.5", "--event", "T1"), "give --markers NAME"),
        (("--hop", "0.5", "--rename", "C3"), "not of the form NAME IN STREAM=NAME IN MODEL"),
        (("--hop", "0.5", "--group", "3"), "neither alignment nor domain_norm"),
        (("--hop", "0.5", "--record", "/nowhere/x.csv"), "there is no folder"),
    ],
)
def test_contradictions_are_explained(network, model, arguments, message):
    stream(network, units="microvolts")
    result = command("online", model, "--stream", "amp", "--duration", "0.1", *arguments)
    assert result.exit_code != 0
    assert message in str(result.exception)

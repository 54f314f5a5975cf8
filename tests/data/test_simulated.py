from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import mne
import numpy as np
import pytest
import scipy.signal

from gbwatt.data.datasets import find_source
from gbwatt.data.montage import montage_name
from gbwatt.data.simulated import DATASETS, ERN, MI, SETS, SSVEP, simulate
from gbwatt.data.simulated.paradigms import Head, Paradigm, head, unit
from gbwatt.data.trials import Truth
from gbwatt.decoding.baselines import evaluate_baseline
from gbwatt.errors import ParameterError

ALL = tuple(SETS.values())
each_set = pytest.mark.parametrize("paradigm", ALL, ids=lambda paradigm: paradigm.like.task)

cached = lru_cache(maxsize=32)(simulate)


def planted(paradigm: Paradigm, subject: int) -> np.ndarray:
    """What the effects add to the recording: it with the effects minus it without them."""
    easy, none = (cached(paradigm.name, subject, difficulty=d).X for d in (0.0, 1.0))
    return easy.astype(float) - none


@lru_cache(maxsize=2)
def spectra(name: str, subject: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies, and mean power (n_classes, n_chans, n_freqs)."""
    trials = cached(name, subject)
    f, power = scipy.signal.periodogram(trials.X, trials.sfreq, window="hann", nfft=512)
    return f, np.stack([power[trials.y == c].mean(axis=0) for c in range(len(trials.class_names))])


def more_power(name: str, subject: int, c: int, band: tuple[float, float]) -> np.ndarray:
    """By how much the log power (n_chans,) in a band is larger for a class than for the others."""
    f, power = spectra(name, subject)
    logs = np.log(power[..., (f >= band[0]) & (f <= band[1])].mean(axis=-1))
    return logs[c] - np.delete(logs, c, axis=0).mean(axis=0)


# ---- shapes, sessions and protocols of the real sets


def test_motor_imagery_has_two_days_of_six_runs_like_2a():
    trials = cached(MI.name, 3)
    assert trials.shape == (576, 22, 438)
    assert (trials.sfreq, trials.tmin, trials.unit) == (125.0, 0.492, "µV")
    assert trials.times[-1] == pytest.approx(3.988)
    assert {session: set(counts.values()) for session, counts in trials.counts().items()} == {"T": {72}, "E": {72}}
    for run in "123456":
        chosen = trials.select(session="T", run=run)
        assert np.bincount(chosen.y).tolist() == [12, 12, 12, 12]


def test_flicker_has_five_sessions_of_trials_cut_in_four_like_mamem():
    trials = cached(SSVEP.name, 3)
    assert trials.shape == (500, 8, 125)
    assert trials.class_names == ("12 Hz", "10 Hz", "8.57 Hz", "7.5 Hz", "6.66 Hz")
    assert [list(counts.values()) for counts in trials.counts().values()] == [[20, 20, 24, 20, 16]] * 5
    assert np.array_equal(trials.group, np.repeat(np.arange(125), 4))
    assert all(len(set(trials.y[trials.group == group])) == 1 for group in range(125))


def test_feedback_has_five_sessions_with_few_errors():
    trials = cached(ERN.name, 7)
    assert trials.shape == (340, 56, 160)
    assert (trials.sfreq, trials.class_names) == (128.0, ("error", "correct"))
    assert [sum(counts.values()) for counts in trials.counts().values()] == [60, 60, 60, 60, 100]
    shares = [np.mean(cached(ERN.name, subject).y == 0) for subject in ERN.like.subjects[:3]]
    assert np.mean(shares) == pytest.approx(0.3, abs=0.06)


@pytest.mark.parametrize("paradigm", [SSVEP, ERN], ids=["ssvep", "ern"])
def test_a_session_is_one_run_where_it_is_in_the_real_set(paradigm):
    trials = cached(paradigm.name, paradigm.like.subjects[0])
    assert np.unique(trials.run).tolist() == ["1", "2", "3", "4", "5"]
    assert np.array_equal(trials.run, trials.session)


@each_set
def test_the_band_of_the_recording_is_among_its_steps(paradigm):
    (step,) = cached(paradigm.name, paradigm.like.subjects[0]).steps
    assert step["step"] == "simulated band-pass"
    assert (step["low"], step["high"]) == {"mi": (4, 38), "ssvep": (1, 40), "ern": (1, 40)}[paradigm.like.task]


@each_set
def test_the_protocol_divides_a_subject_as_the_paper_does(paradigm):
    trials = cached(paradigm.name, paradigm.like.subjects[0])
    (split,) = paradigm.like.protocol.splits(trials)
    sizes = tuple(len(part) for part in (split.train, split.valid, split.test))
    assert sizes == {"mi": (252, 36, 288), "ssvep": (300, 100, 100), "ern": (180, 60, 100)}[paradigm.like.task]


def test_the_data_sets_read_without_files_and_pass_options_on(tmp_path):
    assert [dataset.name for dataset in DATASETS] == list(SETS)
    dataset = DATASETS[1]
    source, files = find_source(dataset, 2, tmp_path, None)
    assert files == ()
    assert source.options == ("difficulty", "seed")
    trials = source.read(files, 2, difficulty=0.2, seed=3)
    assert np.array_equal(trials.X, simulate(dataset.name, 2, difficulty=0.2, seed=3).X)


@each_set
def test_a_set_has_the_subjects_and_the_protocol_of_the_real_one(paradigm):
    dataset = next(dataset for dataset in DATASETS if dataset.name == paradigm.name)
    for name in ("subjects", "protocol", "task", "pipeline"):
        assert getattr(dataset, name) == getattr(paradigm.like, name)
    assert dataset.subjects[-1] in {"mi": (9,), "ssvep": (11,), "ern": (26,)}[paradigm.like.task]


# ---- a seed fixes everything


@each_set
def test_same_seed_and_subject_give_the_same_samples(paradigm):
    subject = paradigm.like.subjects[0]
    first, second = cached(paradigm.name, subject), simulate(paradigm.name, subject)
    assert first is not second
    assert np.array_equal(first.X, second.X)
    assert np.array_equal(first.y, second.y)
    assert first.truth == second.truth


def test_seeds_and_subjects_are_different_people():
    own = cached(SSVEP.name, 1)
    for other in (simulate(SSVEP.name, 1, seed=1), cached(SSVEP.name, 2)):
        assert abs(np.corrcoef(own.X.ravel(), other.X.ravel())[0, 1]) < 0.1
        assert own.truth.effects["10 Hz"][0].topography != other.truth.effects["10 Hz"][0].topography


def test_difficulty_scales_effects_and_changes_nothing_else():
    easy, middle, none = (cached(SSVEP.name, 1, difficulty=d).X.astype(float) for d in (0.0, 0.5, 1.0))
    assert np.allclose(easy - none, 2 * (middle - none), atol=1e-4)
    assert np.abs(easy - none).max() > 1


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"name": "simulated-mi", "subject": 10}, "subject=10 .* 1-9"),
        ({"name": "simulated-ern", "subject": 1}, "subject=1 .* 2, 6-7, 11-14"),
        ({"name": "simulated-me", "subject": 1}, "Did you mean 'simulated-mi'"),
        ({"name": "simulated-mi", "subject": 1, "difficulty": 1.5}, "difficulty=1.5 .* from 0 .* to 1"),
        ({"name": "simulated-mi", "subject": 1, "difficulty": float("nan")}, "difficulty=nan"),
        ({"name": "simulated-mi", "subject": 1, "seed": -1}, "seed=-1 .* 0 or more"),
        ({"name": "simulated-mi", "subject": 1, "seed": 0.5}, "seed=0.5"),
    ],
)
def test_errors_name_what_is_allowed(arguments, named):
    with pytest.raises(ParameterError, match=named):
        simulate(**arguments)


# ---- the forward model


def test_a_radial_dipole_is_seen_best_by_the_electrode_above_it():
    place = head().directions["C3"][None]
    leads = head().leads(MI.ch_names, ("M1",), 0.75 * place, place)[:, 0]
    assert MI.ch_names[int(np.argmax(leads))] == "C3"


def test_a_tangential_dipole_has_a_pole_on_either_side():
    directions = head().directions
    place, forwards = directions["Cz"][None], unit(directions["Fz"] - directions["Pz"])[None]
    leads = dict(zip(MI.ch_names, head().leads(MI.ch_names, ("M1", "M2"), 0.75 * place, forwards)[:, 0], strict=True))
    assert leads["FCz"] > 0 > leads["CPz"]


def test_the_reference_is_subtracted():
    place = head().directions["C3"][None]
    electrodes = ("C3", "Cz")
    against_cz = head().leads(electrodes, ("Cz",), 0.75 * place, place)
    against_m1 = head().leads(electrodes, ("M1",), 0.75 * place, place)
    assert against_cz[1, 0] == 0
    assert np.allclose(against_cz, against_m1 - against_m1[1])


def test_the_fixed_head_is_the_one_that_mne_fits():
    info, sphere = head().info, head().sphere
    montage = mne.channels.make_standard_montage(montage_name())
    own = mne.create_info(info["ch_names"], 1.0, "eeg").set_montage(montage)
    positions, theirs = (np.stack([channel["loc"][:3] for channel in i["chs"]]) for i in (info, own))
    assert np.allclose(positions, theirs, rtol=0, atol=1e-7)
    assert np.linalg.norm(positions - sphere["r0"], axis=1).mean() == pytest.approx(sphere.radius, rel=0.01)
    fitted = Head(head().directions, mne.make_sphere_model(sphere["r0"], sphere.radius), own)
    place = head().directions["C3"][None]
    leads, expected = (h.leads(MI.ch_names, ("M1",), 0.75 * place, place) for h in (head(), fitted))
    assert np.allclose(leads, expected, atol=0.01 * np.abs(expected).max())


SAVE = "import sys, numpy as np; from gbwatt.data import load; np.save(sys.argv[2], load(sys.argv[1]).X)"


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names kernels of x86 processors")
@pytest.mark.parametrize("paradigm", [SSVEP, ERN], ids=["ssvep", "ern"])
def test_samples_do_not_depend_on_the_processor(paradigm, tmp_path):
    """Up to rounding: about 1e-5 µV in float32."""
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Prescott"}
    subprocess.run([sys.executable, "-c", SAVE, paradigm.name, tmp_path / "x.npy"], env=environment, check=True)
    own = cached(paradigm.name, paradigm.like.subjects[0]).X
    assert np.abs(np.load(tmp_path / "x.npy") - own).max() < 1e-4


def test_the_head_is_made_with_the_montage_that_an_older_mne_has(monkeypatch):
    asked = []
    original = mne.channels.make_standard_montage
    monkeypatch.setattr(mne.channels, "get_builtin_montages", lambda: ["standard_1005"])
    monkeypatch.setattr(
        mne.channels, "make_standard_montage", lambda name: asked.append(name) or original("colin27_1005")
    )
    assert head.__wrapped__().directions.keys() == head().directions.keys()
    assert asked == ["standard_1005"]


# ---- the recording looks like EEG


@each_set
def test_amplitudes_and_conditions_are_those_of_eeg(paradigm):
    x = cached(paradigm.name, paradigm.like.subjects[0]).X.astype(float)
    assert 4 < x.std() < 15
    values = np.linalg.eigvalsh(x @ x.swapaxes(1, 2))
    condition = np.median(values[:, -1] / values[:, 0])
    assert 100 < condition < 1e5


@each_set
def test_power_falls_with_frequency_and_little_is_left_of_the_mains(paradigm):
    trials = cached(paradigm.name, paradigm.like.subjects[0], difficulty=1.0)
    f, power = scipy.signal.welch(trials.X, trials.sfreq, nperseg=round(trials.sfreq))
    mean = power.mean(axis=(0, 1))
    five, thirty, mains = (mean[np.abs(f - at).argmin()] for at in (5, 30, 50))
    assert five > 3 * thirty
    around = mean[(abs(f - 50) > 2) & (abs(f - 50) < 5)].mean()
    assert 1.2 * around < mains < 0.5 * thirty


def test_blinks_are_rare_large_and_frontal():
    trials = cached(ERN.name, 6)
    reach = np.ptp(trials.X, axis=2)  # (n, n_chans)
    frontal, parietal = (reach[:, trials.ch_names.index(name)] for name in ("Fp1", "Pz"))
    blinked = frontal > 3 * np.median(frontal)
    assert 0.01 < blinked.mean() < 0.4
    assert np.median(parietal[blinked]) < 0.5 * np.median(frontal[blinked])


@each_set
def test_recordings_drift_more_between_sessions_than_within(paradigm):
    between, within = [], []
    for subject in paradigm.like.subjects[:2]:
        trials = cached(paradigm.name, subject, difficulty=1.0)
        levels = np.log(np.median(np.abs(trials.X), axis=2))  # (n, n_chans)
        means = []
        for session in paradigm.sessions:
            first, second = np.array_split(levels[trials.session == session], 2)
            within.append(np.abs(second.mean(axis=0) - first.mean(axis=0)).mean())
            means.append(np.concatenate([first, second]).mean(axis=0))
        between.extend(np.abs(np.diff(means, axis=0)).mean(axis=1))
    assert np.mean(between) > 1.3 * np.mean(within)


# ---- the truth is true


@each_set
def test_truth_names_electrodes_where_the_source_is_strongest(paradigm):
    trials = cached(paradigm.name, paradigm.like.subjects[0])
    truth = trials.truth
    assert truth is not None
    effects = [effect for found in truth.effects.values() for effect in found]
    assert set(truth.effects) == set(trials.class_names)
    assert len(effects) == {"mi": 8, "ssvep": 5, "ern": 2}[paradigm.like.task]
    for effect in effects:
        weights = np.abs(effect.topography)
        assert weights.max() == pytest.approx(1)
        assert trials.ch_names[int(weights.argmax())] == effect.channels[0]
        assert len(effect.channels) <= len(trials.ch_names) / 4
    assert Truth.from_dict(truth.to_dict()) == truth


def test_nothing_is_planted_at_the_highest_difficulty():
    truth = cached(SSVEP.name, 1, difficulty=1.0).truth
    assert truth is not None
    assert all(effects == () for effects in truth.effects.values())


def test_motor_imagery_is_planted_at_the_areas_of_the_body():
    for subject in MI.like.subjects[:3]:
        effects = cached(MI.name, subject).truth.effects
        found = {name: {effect.channels[0] for effect in own} for name, own in effects.items()}
        assert found == {"left hand": {"C4"}, "right hand": {"C3"}, "feet": {"Cz"}, "tongue": {"C5"}}


@pytest.mark.parametrize("subject", [1, 3])
def test_motor_imagery_desynchronises_where_and_at_the_frequencies_planted(subject):
    trials = cached(MI.name, subject)
    for c, name in enumerate(trials.class_names):
        for effect in trials.truth.effects[name]:
            change = more_power(MI.name, subject, c, effect.band)
            lowest = trials.ch_names[int(change.argmin())]
            assert lowest in {channel for e in trials.truth.effects[name] for channel in e.channels}
            assert change[trials.ch_names.index(effect.channels[0])] < -0.1


@pytest.mark.parametrize("subject", [1, 3])
def test_motor_imagery_changes_the_spectrum_at_the_rhythms_planted(subject):
    trials = cached(MI.name, subject)
    f, power = scipy.signal.welch(trials.X[:, trials.ch_names.index("C3")], trials.sfreq, nperseg=250)
    right = trials.y == 1
    change = np.log(power[right].mean(axis=0)) - np.log(power[~right].mean(axis=0))
    bands = [effect.band for effect in trials.truth.effects["right hand"]]
    assert len(bands) == 2
    for (low, high), start, end in zip(bands, (4, 15), (15, 35), strict=True):  # mu, beta
        part = (f >= start) & (f < end)
        assert low <= f[part][change[part].argmin()] <= high


@pytest.mark.parametrize("subject", [1, 5])
def test_flicker_is_strongest_at_oz_and_at_its_frequency(subject):
    trials = cached(SSVEP.name, subject)
    for c, name in enumerate(trials.class_names):
        (effect,) = trials.truth.effects[name]
        more = more_power(SSVEP.name, subject, c, effect.band)
        assert trials.ch_names[int(more.argmax())] in effect.channels


def test_flicker_goes_on_through_the_segments_of_a_trial():
    waves = planted(SSVEP, 1)[:, SSVEP.ch_names.index("Oz")].reshape(125, 4 * 125)
    trials = cached(SSVEP.name, 1)
    f = np.fft.rfftfreq(4 * 500, 1 / 125)
    power = np.abs(np.fft.rfft(waves * np.hanning(500), 4 * 500)) ** 2
    flicker = np.array([12.0, 10.0, 8.57, 7.5, 6.66])[trials.y[::4]]
    assert np.abs(f[power.argmax(axis=1)] - flicker).max() < 0.07  # a jump of phase would widen or move the line
    share = [power[n, abs(f - flicker[n]) < 0.6].sum() / power[n, f < flicker[n] * 1.5].sum() for n in range(125)]
    assert min(share) > 0.99


@pytest.mark.parametrize("subject", [2, 7])
def test_errors_have_a_negativity_at_fcz_and_a_positivity_after_it(subject):
    trials = cached(ERN.name, subject)
    difference = trials.X[trials.y == 0].mean(axis=0) - trials.X[trials.y == 1].mean(axis=0)
    negativity, positivity = trials.truth.effects["error"]
    assert "FCz" in negativity.channels
    for effect, sign in ((negativity, -1), (positivity, 1)):
        assert np.sign(effect.topography[trials.ch_names.index(effect.channels[0])]) == sign
        channel, sample = np.unravel_index((sign * difference).argmax(), difference.shape)
        assert trials.ch_names[channel] in effect.channels
        assert effect.window[0] <= trials.times[sample] <= effect.window[1]


@each_set
def test_the_topography_is_that_of_what_was_planted(paradigm):
    subject = paradigm.like.subjects[0]
    trials, added = cached(paradigm.name, subject, difficulty=0.0), planted(paradigm, subject)
    for c, name in enumerate(trials.class_names):
        effects = trials.truth.effects[name]
        if not effects:
            assert np.abs(added[trials.y == c]).max() < 1e-3
            continue
        own = added[trials.y == c].swapaxes(0, 1).reshape(len(trials.ch_names), -1)
        basis = np.linalg.qr(np.unique([e.topography for e in effects], axis=0).T)[0]
        explained = np.linalg.norm(basis.T @ own) ** 2 / np.linalg.norm(own) ** 2
        assert explained > 0.97  # the rest is drift, and how the cap sits that day


# ---- it can be decoded, as far as the difficulty allows


@pytest.mark.parametrize(
    "paradigm, subject, low, high",
    [(MI, 1, 0.5, 0.95), (SSVEP, 1, 0.5, 0.95), (ERN, 6, 0.65, 0.98)],
    ids=["mi", "ssvep", "ern"],
)
def test_a_classical_pipeline_decodes_and_does_not_without_an_effect(paradigm, subject, low, high):
    usual, none = (
        evaluate_baseline(cached(paradigm.name, subject, difficulty=d), paradigm.like.protocol, paradigm.like.pipeline)
        for d in (0.5, 1.0)
    )
    assert low < usual.score < high
    assert usual.decodable
    assert abs(none.score - none.chance) < 0.15


@pytest.mark.parametrize(
    "paradigm",
    [SSVEP, *(pytest.param(paradigm, marks=pytest.mark.slow) for paradigm in (MI, ERN))],
    ids=["ssvep", "mi", "ern"],
)
def test_nothing_is_decoded_without_an_effect_over_all_subjects(paradigm):
    like = paradigm.like
    found = [
        evaluate_baseline(simulate(paradigm.name, s, difficulty=1.0), like.protocol, like.pipeline)
        for s in like.subjects
    ]
    assert np.mean([one.score for one in found]) == pytest.approx(1 / len(paradigm.class_names), abs=0.04)
    assert sum(one.decodable for one in found) <= 2  # one in twenty is, by chance


@pytest.mark.slow
@each_set
def test_decoding_falls_with_difficulty_over_subjects(paradigm):
    scores = [
        np.mean(
            [
                evaluate_baseline(
                    simulate(paradigm.name, s, difficulty=d), paradigm.like.protocol, paradigm.like.pipeline
                ).score
                for s in paradigm.like.subjects[:4]
            ]
        )
        for d in (0.0, 0.5, 1.0)
    ]
    assert scores[0] > scores[1] + 0.05 > scores[2] + 0.1


@pytest.mark.slow
def test_the_network_decodes_flicker():
    from gbwatt.decoding import GBWAttClassifier

    trials = cached(SSVEP.name, 1)
    (split,) = SSVEP.like.protocol.splits(trials)
    known = np.concatenate([split.train, split.valid])
    model = GBWAttClassifier(task="ssvep", max_epochs=40).fit(trials.X[known], trials.y[known])
    assert model.score(trials.X[split.test], trials.y[split.test]) > 0.4


@pytest.mark.slow
def test_the_example_draws_its_figures(tmp_path):
    pytest.importorskip("matplotlib")
    script = Path(__file__).parents[2] / "examples" / "simulated_effects.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    assert len(list(tmp_path.glob("*.png"))) == 6

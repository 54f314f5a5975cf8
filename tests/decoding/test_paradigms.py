"""Settings of paradigms: what they set, what takes precedence, and how "auto" chooses."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt import EEGDecoder, GBWAttClassifier
from gbwatt.decoding.paradigms import (
    FEWEST_TRIALS,
    MANY_TRIALS,
    MOST_TRIALS,
    OF_TASKS,
    PARADIGMS,
    Settings,
    choose_settings,
)
from gbwatt.errors import ParameterError
from gbwatt.models import create
from gbwatt.models.presets import TASKS
from gbwatt.models.signal import Signal

SIGNALS = [
    Signal(22, 4, 438, 125.0),
    Signal(8, 5, 125, 125.0),
    Signal(3, 2, 250, 125.0),
    Signal(64, 2, 640, 160.0),
    Signal(16, 2, 102, 128.0),
    Signal(4, 2, 40, None),
    Signal(1, 2, 30, None),
]


def epochs(n=24, channels=3, times=48, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, channels, times)), np.arange(n) % 2
    x[y == 1, 0] *= 3
    return x, y


@pytest.mark.parametrize("n_trials", [20, 500])
@pytest.mark.parametrize("name", PARADIGMS)
@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_settings_of_every_paradigm_build_a_network_for_every_signal(name, signal, n_trials):
    settings = PARADIGMS[name].settings(name, signal, "as requested", n_trials)
    module = create("gbwatt", **vars(signal), **settings.options)
    assert module.config["recipe"] == "best"
    assert settings.options["kernel"] <= max(2, signal.n_times // 2 + 1)


@pytest.mark.parametrize(
    ("channels", "n_trials", "initialization", "n_temporal"),
    [
        (3, MANY_TRIALS - 1, "classical", 15),
        (3, MANY_TRIALS, "random", 20),
        (8, MANY_TRIALS, "random", 20),
        (9, MANY_TRIALS, "classical", 9),
        (22, MANY_TRIALS, "classical", 22),
    ],
)
def test_filters_of_few_channels_are_trained_from_random_weights_if_there_are_many_trials(
    channels, n_trials, initialization, n_temporal
):
    settings = PARADIGMS["mi"].settings("mi", Signal(channels, 2, 500, 125.0), "", n_trials)
    assert (settings.initialization, settings.options["n_temporal"]) == (initialization, n_temporal)
    chosen = choose_settings(
        "mi", no_comparison, no_pipeline, no_pipeline, Signal(channels, 2, 500, 125.0), np.arange(n_trials) % 2
    )
    assert chosen.options == settings.options


def test_every_task_of_the_paper_has_a_paradigm():
    assert set(TASKS) <= set(OF_TASKS)
    assert set(OF_TASKS.values()) == set(PARADIGMS)


def test_settings_survive_a_dict():
    settings = PARADIGMS["erp"].settings("erp", SIGNALS[4], "as requested")
    assert Settings.from_dict(settings.to_dict()) == settings


@pytest.mark.parametrize(
    "change",
    [
        {"paradigm": "sleep"},
        {"options": 3},
        {"reason": None},
        {"training": {"lr": -1.0, "batch_size": 32, "max_epochs": 1, "weight_decay": 0.0}},
        {"training": {"lr": "fast", "batch_size": 32, "max_epochs": 1, "weight_decay": 0.0}},
    ],
)
def test_settings_that_cannot_have_been_written_are_refused(change):
    written = PARADIGMS["mi"].settings("mi", SIGNALS[0], "as requested").to_dict()
    with pytest.raises((ValueError, TypeError)):
        Settings.from_dict({**written, **change})


# ---- choice


def choose(compare, y, filter_bank=0.6, frequencies=0.69, signal=SIGNALS[0]):
    """The choice for these losses, and mean losses of the filter bank and of the class frequencies."""
    return choose_settings("auto", compare, pipeline_with_loss(filter_bank), pipeline_with_loss(frequencies), signal, y)


def losses(initial, trained=None, seed=0):
    """Losses of paradigms with these means before and after training, which differ by noise from trial to trial.

    A paradigm without a mean must not be compared.
    """
    rng = np.random.default_rng(seed)

    def compare(settings, train, test, *, trained: bool, means=(initial, trained or {})):
        assert not set(train) & set(test)
        return means[trained][settings.paradigm] + 0.1 * rng.standard_normal(len(test))

    return compare


def pipeline_with_loss(mean):
    """A filter-bank pipeline whose trials all have this loss."""
    return lambda train, test: np.full(len(test), mean)


def no_comparison(settings, train, test, *, trained):
    """A comparison that must not be made."""
    raise AssertionError


def no_pipeline(train, test):
    """A filter-bank pipeline that must not be fitted."""
    raise AssertionError


def test_event_related_potentials_are_recognised_by_the_initial_weights():
    y = np.arange(60) % 2
    chosen = choose(losses({"mi": 0.7, "erp": 0.4}), y)
    assert chosen.paradigm == "erp"
    assert chosen.options == PARADIGMS["erp"].settings("erp", SIGNALS[0], "").options
    for text in ("log loss 0.409", "0.708 (mi)", "0.600 (filter bank)", "3-fold", "initial weights"):
        assert text in chosen.reason


def test_a_loss_that_is_not_lower_than_that_of_the_class_frequencies_shows_no_event_related_potentials():
    compare = losses({"mi": 0.9, "erp": 0.7}, {"mi": 0.6, "ssvep": 0.7})
    assert choose(compare, np.arange(60) % 2, filter_bank=0.8).paradigm == "mi"
    assert choose(compare, np.arange(60) % 2, filter_bank=0.8, frequencies=0.8).paradigm == "erp"


RARE = np.arange(60) % 5 == 0


@pytest.mark.parametrize(
    ("y", "initial", "filter_bank", "paradigm"),
    [
        (RARE, {"mi": 0.5, "erp": 0.51}, 0.6, "erp"),  # within two standard errors
        (RARE, {"mi": 0.3, "erp": 0.5}, 0.6, "mi"),
        (RARE, {"mi": 0.5, "erp": 0.5}, 0.3, "mi"),
        (np.arange(60) % 3 == 0, {"mi": 0.5, "erp": 0.51}, 0.6, "mi"),  # one to two
        (np.arange(60) // 5 % 3, {"mi": 0.5, "erp": 0.51}, 0.6, "mi"),
    ],
)
def test_two_unequal_classes_are_event_related_potentials_unless_another_paradigm_is_clearly_better(
    y, initial, filter_bank, paradigm
):
    chosen = choose(losses(initial, {"mi": 0.5, "ssvep": 0.7}), y.astype(int), filter_bank)
    assert chosen.paradigm == paradigm
    assert ("oddball" in chosen.reason) == (paradigm == "erp")


def test_few_trials_of_large_epochs_are_compared():
    seen = set()

    def compare(settings, train, test, *, trained):
        seen.update(test.tolist())
        return np.zeros(len(test))

    choose(compare, np.arange(400) % 2, signal=Signal(64, 2, 1024, 512.0))
    assert len(seen) == FEWEST_TRIALS


def test_responses_that_a_filter_bank_explains_better_are_not_event_related_potentials():
    y = np.arange(60) % 2
    compare = losses({"mi": 0.7, "erp": 0.4}, {"mi": 0.7, "ssvep": 0.3})
    assert choose(compare, y, filter_bank=0.35).paradigm == "ssvep"


def test_the_trained_paradigm_with_the_lowest_loss_is_chosen_and_the_reason_has_all_losses():
    y = np.arange(60) % 2
    compare = losses({"mi": 0.4, "erp": 0.7}, {"mi": 0.7, "ssvep": 0.5})
    chosen = choose(compare, y)
    assert chosen.paradigm == "ssvep"
    for text in ("log loss 0.482", "0.693 (mi)", "after training"):
        assert text in chosen.reason


def test_a_difference_within_its_standard_error_chooses_oscillations():
    y = np.arange(12) % 2

    def compare(settings, train, test, *, trained):
        """Losses with the same mean but for 0.01, and a large scatter."""
        scatter = np.resize([1.0, -1.0], len(test)) * (settings.paradigm == "erp")
        return 0.6 - 0.01 * (settings.paradigm == "erp") + scatter

    assert choose(compare, y).paradigm == "mi"


def test_a_class_with_a_single_trial_is_no_obstacle():
    y = np.array([0, 0, 0, 0, 1])
    chosen = choose_settings("auto", no_comparison, no_pipeline, no_pipeline, SIGNALS[0], y)
    assert chosen.paradigm == "erp"
    assert "single trial" in chosen.reason
    assert "oddball" in chosen.reason
    chosen = choose_settings("auto", no_comparison, no_pipeline, no_pipeline, SIGNALS[0], np.array([0, 0, 1]))
    assert chosen.paradigm == "mi"


def test_the_comparison_uses_a_limited_number_of_trials_of_every_class():
    y = np.r_[np.zeros(2000, int), np.ones(500, int)]
    seen = set()

    def compare(settings, train, test, *, trained):
        seen.update(train.tolist(), test.tolist())
        return np.zeros(len(test))

    choose(compare, y)
    labels = y[sorted(seen)]
    assert len(seen) == MOST_TRIALS
    assert (labels == 1).sum() == MOST_TRIALS // 5
    assert min(seen) == 0
    assert max(seen) == len(y) - 1


# ---- estimators


def test_a_task_selects_the_settings_of_its_paradigm():
    x, y = epochs()
    fitted = GBWAttClassifier(task="ern", max_epochs=1).fit(x, y)
    assert fitted.settings_.paradigm == "erp"
    assert fitted.net_.module_.config["embed_mean"]
    assert fitted.settings_.schedule == "cosine"
    assert fitted.settings_.training.max_epochs == 1


def test_arguments_take_precedence_over_the_paradigm():
    x, y = epochs()
    options = {"residual": 0.25, "n_temporal": 4}
    arguments = {"lr": 0.02, "batch_size": 6, "max_epochs": 2, "initialization": "random", "schedule": "constant"}
    fitted = GBWAttClassifier(task="mi", k=2, shrinkage=0.4, model_options=options, **arguments).fit(x, y)
    config = fitted.net_.module_.config
    assert (config["k"], config["shrinkage"], config["residual"], config["n_temporal"]) == (2, 0.4, 0.25, 4)
    assert (fitted.net_.lr, fitted.net_.batch_size, len(fitted.history_)) == (0.02, 6, 2)
    assert [row["lr"] for row in fitted.history_] == [0.02, 0.02]


def test_all_trials_are_for_training_unless_validation_or_early_stopping_is_given():
    x, y = epochs()
    plain = GBWAttClassifier(task="mi", max_epochs=1).fit(x, y)
    assert "valid_loss" not in plain.history_[0]
    assert set(plain.used_for(x)) == {"training"}
    for arguments in ({"validation": 0.25}, {"early_stopping": 1}, {"recipe": "paper", "task": None}):
        fitted = GBWAttClassifier(**{"task": "mi", "max_epochs": 1, **arguments}).fit(x, y)
        assert "valid_loss" in fitted.history_[0], arguments


def test_without_a_task_the_choice_is_made_on_training_trials_and_said():
    x, y = epochs()
    fitted = GBWAttClassifier(max_epochs=1).fit(x, y)
    assert fitted.settings_.paradigm in PARADIGMS
    assert "cross-validation of the training trials" in fitted.settings_.reason
    again = GBWAttClassifier(max_epochs=1).fit(x, y)
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))


def test_the_paradigm_is_recognised_with_random_initial_weights_too():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 4, 64)), np.arange(40) % 2
    x += np.where(y == 1, 0.5, -0.5)[:, None, None] * np.hanning(64)
    fitted = GBWAttClassifier(max_epochs=1, initialization="random").fit(x, y)
    assert fitted.settings_.paradigm == "erp"
    assert fitted.settings_.initialization == "random"
    assert "initial weights" in fitted.settings_.reason


@pytest.mark.parametrize("recipe", ["paper", "release"])
def test_other_recipes_have_no_paradigm(recipe):
    x, y = epochs(times=64)
    fitted = GBWAttClassifier(recipe=recipe, max_epochs=1).fit(x, y)
    assert fitted.settings_.paradigm is None
    assert (fitted.settings_.initialization, fitted.settings_.schedule) == ("random", "constant")


def test_a_saved_model_keeps_its_settings(tmp_path):
    x, y = epochs()
    fitted = GBWAttClassifier(task="erp", max_epochs=1).fit(x, y)
    fitted.save_pretrained(tmp_path)
    loaded = GBWAttClassifier.from_pretrained(tmp_path)
    assert loaded.settings_ == fitted.settings_
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))


def test_the_cosine_schedule_ends_near_zero_and_a_checkpoint_with_another_length_is_refused(tmp_path):
    x, y = epochs()
    arguments = {"task": "mi", "checkpoint": tmp_path}
    fitted = GBWAttClassifier(max_epochs=4, **arguments).fit(x, y)
    rates = [row["lr"] for row in fitted.history_]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.2 * rates[0]
    with pytest.raises(ValueError, match="max_epochs is 4 there and 5 here"):
        GBWAttClassifier(max_epochs=5, **arguments).fit(x, y)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"paradigm": "sleep"}, "paradigm"),
        ({"task": "sleep"}, "task"),
        ({"schedule": "linear"}, "schedule"),
        ({"initialization": "zero"}, "initialization"),
        ({"validation": "none"}, "validation"),
    ],
)
def test_unknown_values_are_refused_before_training(arguments, named):
    x, y = epochs()
    with pytest.raises(ParameterError, match=named):
        GBWAttClassifier(**arguments).fit(x, y)


def test_paradigms_are_for_gbwatt_only():
    x, y = epochs()
    with pytest.raises(ParameterError, match="gbwatt"):
        EEGDecoder("matt", paradigm="mi").fit(x, y)

"""Candidates of a hyper-parameter search: how they are scored, and how Optuna proposes, prunes and stores them."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gbwatt._io import to_json
from gbwatt.data import Trials
from gbwatt.data.splits import consecutive_folds
from gbwatt.decoding.callbacks import Callback, StopTraining
from gbwatt.decoding.checkpoints import require_same_fingerprint
from gbwatt.decoding.estimator import EEGDecoder
from gbwatt.decoding.evaluation import ModelSetup, scores
from gbwatt.decoding.search_space import Space, encode_settings
from gbwatt.decoding.sharding import hash_numbers
from gbwatt.decoding.training_record import versions
from gbwatt.errors import CheckpointError, PackageError, ParameterError

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

    from gbwatt.decoding.training import Trainer

Indices = NDArray[np.int64]

#: Objectives of a search, and whether higher scores are better.
OBJECTIVES = {"loss": False, "balanced_accuracy": True}
#: Rules that stop bad candidates early: "median" stops those that are worse than the median of the others at the same
#: epoch or fold, and "halving" is asynchronous successive halving.
PRUNING = ("median", "halving", "none")

STARTUP = 10  # number of candidates that are drawn at random, before the sampler learns from the others
COMPLETE_BEFORE_PRUNING = 4  # number of completed candidates before the median is used
WARMUP_EPOCHS = 5  # epochs of a candidate before it can be stopped
REDUCTION = 3  # one of so many candidates continues after each step of successive halving


# --------------------------------------------------------------------------------------------------------------- scores


class Report(Protocol):
    """Receives the intermediate results of a candidate."""

    def __call__(self, cost: float, step: int, /) -> bool:
        """Store a cost, of which lower values are better, for an epoch or fold; return whether to stop."""


class Part(NamedTuple):
    """Indices of the trials that a candidate is trained on, that select the epoch, and that it is scored on."""

    train: Indices
    select: Indices
    scored: Indices


@dataclass(frozen=True)
class Outcome:
    """How a candidate has ended.

    Attributes
    ----------
    status : "done", "pruned" or "failed"
    loss, balanced_accuracy : float or None
        Scores of the trials that the candidate was not trained on, averaged over folds; None unless it is done.
    epochs : int
        Number of epochs, those of all folds together.
    reason : str
        Why the candidate failed, was pruned or was not trained; empty otherwise.
    """

    status: str
    loss: float | None = None
    balanced_accuracy: float | None = None
    epochs: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Objective:
    """Score of a candidate on trials that it was not trained on.  It has no test trials.

    Attributes
    ----------
    setup : ModelSetup
        Model and fixed settings.
    trials : Trials
        Training and validation trials.
    train, valid : array of int
        Which of them are for training and validation.
    folds : int or None
        Number of folds of the cross-validation; None to score the validation trials.
    name : "loss" or "balanced_accuracy"
    """

    setup: ModelSetup
    trials: Trials
    train: Indices
    valid: Indices
    folds: int | None
    name: str

    @property
    def maximize(self) -> bool:
        """Whether higher scores are better."""
        return OBJECTIVES[self.name]

    def parts(self, setup: ModelSetup) -> list[Part]:
        """Training, selection and scored trials of each fold, or of the only one.

        Validation trials that do not select the epoch are trained on in cross-validation, as in the final training.
        """
        none = self.valid[:0]
        if self.folds is None:
            return [Part(self.train, self.valid if setup.selects_epoch else none, self.valid)]
        rows, select = self.train, self.valid
        if not setup.selects_epoch:
            rows, select = np.sort(np.concatenate([self.train, self.valid])), none
        folds = consecutive_folds(self.trials[rows], self.folds)
        return [Part(rows[train], select, rows[test]) for train, test in folds]

    def evaluate(self, settings: Mapping[str, Any], report: Report) -> Outcome:
        """Train and score a candidate; ``report`` is called after each epoch, or with folds after each fold."""
        setup = self.setup.with_settings(settings)
        parts = self.parts(setup)
        results: list[dict[str, Any]] = []
        epochs = 0
        for number, part in enumerate(parts, 1):
            decoder = setup.make_decoder(self.trials[part.select] if len(part.select) else None)
            scored = self.trials[part.scored]
            monitor = EpochReport(decoder, scored, report) if len(parts) == 1 else None
            decoder.callbacks = [] if monitor is None else [monitor]
            decoder.fit(self.trials[part.train])
            epochs += len(decoder.history_)
            if monitor is not None and monitor.stopped:
                return Outcome("pruned", epochs=epochs, reason=f"stopped after epoch {monitor.stopped}")
            results.append(scores(decoder, scored))
            cost = float(np.mean([self._cost(result) for result in results]))
            if 1 < len(parts) != number and report(cost, number):
                return Outcome("pruned", epochs=epochs, reason=f"stopped after fold {number} of {len(parts)}")
        means = {name: float(np.mean([result[name] for result in results])) for name in OBJECTIVES}
        if not all(map(math.isfinite, means.values())):
            return Outcome("failed", epochs=epochs, reason=f"the scores are not finite: {means}")
        return Outcome("done", means["loss"], means["balanced_accuracy"], epochs)

    def _cost(self, result: Mapping[str, Any]) -> float:
        """The objective of some scores, negative if higher values are better."""
        return float(-result[self.name] if self.maximize else result[self.name])


class EpochReport(Callback):
    """Reports the log loss of trials after each epoch, and ends the training of a candidate that is stopped.

    Parameters
    ----------
    decoder : EEGDecoder
        The classifier that is trained.  Only the first network of an ensemble is reported.
    scored : Trials
        Trials that the candidate is scored on.  If they are the validation trials, their loss is already known.
    report : callable
        See :class:`Report`.
    """

    def __init__(self, decoder: EEGDecoder, scored: Trials, report: Report) -> None:
        self.decoder, self.scored, self.report = decoder, scored, report
        self.stopped = 0  # number of the epoch

    def on_epoch_begin(self, net: Trainer, **_: Any) -> None:  # noqa: ARG002
        """Skip the other networks of an ensemble whose first network was stopped."""
        if self.stopped:
            raise StopTraining

    def on_epoch_end(self, net: Trainer, **_: Any) -> None:
        """Report the loss of the epoch."""
        if net is not self.decoder.net_:
            return
        row = net.history[-1]
        loss = row["valid_loss"] if "valid_loss" in row else scores(self.decoder, self.scored)["loss"]
        if self.report(float(loss), len(net.history)):
            self.stopped = len(net.history)
            raise StopTraining


# ------------------------------------------------------------------------------------------------------------ candidate


@dataclass(frozen=True)
class Candidate:
    """Settings that a search has tried.

    Attributes
    ----------
    number : int
        From 0, in the order of the search.
    settings : dict
        Training settings and model options by name.
    status, loss, balanced_accuracy, epochs, reason
        See :class:`Outcome`.
    score : float or None
        The objective: ``loss`` or ``balanced_accuracy``.
    seconds : float
    seed : int
        Random seed of the training.
    versions : dict
        Versions of Python and of packages.
    """

    number: int
    settings: Mapping[str, Any]
    status: str
    score: float | None = None
    loss: float | None = None
    balanced_accuracy: float | None = None
    epochs: int = 0
    seconds: float = 0.0
    seed: int = 0
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All fields, as values that can be written as JSON."""
        return asdict(self)


_NUMBER, _RESULT, _FINGERPRINT = "candidate", "result", "fingerprint"  # attributes of trials and of the study


def read_candidates(study: optuna.Study) -> list[Candidate]:
    """Finished candidates of a study, in the order of their numbers."""
    finished = [trial.user_attrs[_RESULT] for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    return sorted((Candidate(**values) for values in finished), key=lambda candidate: candidate.number)


@dataclass(frozen=True)
class CandidateRunner:
    """Draws, trains and stores candidates.

    Attributes
    ----------
    objective : Objective
    space : dict of str to Range or Choices
    usual : dict
        Settings of a training without a search, which are the first candidate if the space contains them.
    pruning : str
        One of :data:`PRUNING`.
    seed : int
    """

    objective: Objective
    space: Space
    usual: Mapping[str, Any]
    pruning: str
    seed: int

    def run(self, study: optuna.Study, number: int) -> Candidate:
        """Train the candidate with this number, store its result and return it.

        A candidate whose training was interrupted is trained again with the same settings.  Settings that an earlier
        candidate has completed are not trained again.
        """
        trial = self._ask(study, number)
        drawn = self._draw(trial)
        started = time.perf_counter()
        same = next((one for one in read_candidates(study) if one.status == "done" and one.settings == drawn), None)
        try:
            if same is not None:
                reason = f"settings of candidate {same.number}"
                outcome = Outcome("done", same.loss, same.balanced_accuracy, same.epochs, reason)
            else:
                outcome = self.objective.evaluate(drawn, _TrialReport(study, trial, self.objective.maximize))
        except Exception as error:  # any error: the other candidates continue
            outcome = Outcome("failed", reason=f"{type(error).__name__}: {error}")
        return self._store(study, trial, drawn, outcome, time.perf_counter() - started)

    def fail(self, study: optuna.Study, number: int, reason: str) -> Candidate:
        """Store a candidate that could not be trained."""
        trial = self._ask(study, number)
        drawn = self._draw(trial)
        return self._store(study, trial, drawn, Outcome("failed", reason=reason), 0.0)

    def _ask(self, study: optuna.Study, number: int) -> optuna.Trial:
        """The trial of Optuna for a candidate: that of an interrupted training, or a new one.

        The settings depend on the seed, the number and the completed candidates only, not on interruptions.
        """
        import optuna

        seed = hash_numbers(self.seed, number) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        interrupted = _running(study, number)
        if interrupted is not None:
            return optuna.Trial(study, interrupted._trial_id)
        usual = encode_settings(self.space, self.usual) if number == 0 else None
        if usual is not None:
            study.enqueue_trial(usual, skip_if_exists=True)
        trial = study.ask()
        trial.set_user_attr(_NUMBER, number)
        return trial

    def _draw(self, trial: optuna.Trial) -> dict[str, Any]:
        """The settings of a candidate; those of an interrupted training remain."""
        return {name: dimension.draw(trial, name) for name, dimension in self.space.items()}

    def _store(
        self,
        study: optuna.Study,
        trial: optuna.Trial,
        settings: Mapping[str, Any],
        outcome: Outcome,
        seconds: float,
    ) -> Candidate:
        """Store the result of a candidate in the study, and return it."""
        import optuna
        from optuna.trial import TrialState

        candidate = Candidate(
            number=trial.user_attrs[_NUMBER],
            settings=dict(settings),
            score=getattr(outcome, self.objective.name),
            seconds=seconds,
            seed=self.objective.setup.seed,
            versions={**versions(), "optuna": optuna.__version__},
            **asdict(outcome),
        )
        states = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        trial.set_user_attr(_RESULT, json.loads(to_json(candidate.to_dict())))
        study.tell(trial, candidate.score, states[candidate.status])
        return candidate

    def make_pruner(self) -> optuna.pruners.BasePruner:
        """The pruner of Optuna; its steps are epochs, or the folds of a cross-validation."""
        from optuna import pruners

        first = WARMUP_EPOCHS if self.objective.folds is None else 1
        if self.pruning == "median":
            return pruners.MedianPruner(COMPLETE_BEFORE_PRUNING, n_warmup_steps=first)
        if self.pruning == "halving":
            return pruners.SuccessiveHalvingPruner(first, REDUCTION)
        return pruners.NopPruner()


def _running(study: optuna.Study, number: int) -> FrozenTrial | None:
    """The unfinished trial of Optuna for a candidate, if there is one."""
    trials = study.get_trials(deepcopy=False)
    unfinished = (trial for trial in trials if not trial.state.is_finished())
    return next((trial for trial in unfinished if trial.user_attrs.get(_NUMBER) == number), None)


class _TrialReport:
    """Passes intermediate results to Optuna, and asks whether to stop.

    Results that were reported before an interruption are not reported again.
    """

    def __init__(self, study: optuna.Study, trial: optuna.Trial, maximize: bool) -> None:
        self.trial, self.sign = trial, -1 if maximize else 1
        stored = _running(study, trial.user_attrs[_NUMBER])
        self.reported = 0 if stored is None or stored.last_step is None else stored.last_step

    def __call__(self, cost: float, step: int) -> bool:
        if step < self.reported:
            return False
        if step > self.reported:
            self.trial.report(self.sign * cost, step)
        return self.trial.should_prune()


# -------------------------------------------------------------------------------------------------------------- storage


def require_optuna() -> None:
    """Raise PackageError, with the command that installs it, if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise PackageError.missing("optuna", "a hyper-parameter search", "search") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the messages of Optuna within the context."""
    from optuna import logging
    from optuna.exceptions import ExperimentalWarning

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        logging.set_verbosity(before)


def open_study(
    runner: CandidateRunner, storage: Path | None, fingerprint: Mapping[str, Any] | None = None
) -> optuna.Study:
    """Open the study of a search, and create it if it does not exist.

    Parameters
    ----------
    runner : CandidateRunner
    storage : path or None
        Journal file of Optuna; None to keep the study in memory.
    fingerprint : mapping, optional
        Everything that the scores depend on.  Default: the study is not checked.

    Raises
    ------
    ParameterError
        If the file cannot be written, or is not the storage of a search.
    CheckpointError
        If the file belongs to another search, or is damaged.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    direction: Literal["maximize", "minimize"] = "maximize" if runner.objective.maximize else "minimize"
    pruner = runner.make_pruner()
    try:
        backend = None if storage is None else JournalStorage(JournalFileBackend(str(storage)))
        exists = storage is not None and storage.stat().st_size > 0
        if backend is not None and exists:
            if optuna.get_all_study_names(backend) != [_NAME]:
                raise ValueError("its studies are of another program")
            study = optuna.load_study(storage=backend, study_name=_NAME, pruner=pruner)
        else:
            study = optuna.create_study(storage=backend, study_name=_NAME, direction=direction, pruner=pruner)
    except OSError as error:
        raise ParameterError(
            f"storage={str(storage)!r} cannot be written ({error.strerror or error}); choose another file."
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"storage={str(storage)!r} is damaged or not the file of a search ({error!r}); restore it from a copy, or "
            "choose another file."
        ) from error
    if fingerprint is not None and exists:
        require_same_fingerprint(Path(str(storage)), "search", study.user_attrs.get(_FINGERPRINT, {}), fingerprint)
    elif fingerprint is not None:
        study.set_user_attr(_FINGERPRINT, json.loads(to_json(fingerprint)))
    return study


_NAME = "gbwatt search"  # of the study in a file


def importances(study: optuna.Study) -> dict[str, float]:
    """Importance of each setting for good scores, which sum to 1; empty with fewer than ten completed candidates."""
    import optuna

    completed = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(completed) < STARTUP or len({trial.value for trial in completed}) < 2:
        return {}
    return {name: float(value) for name, value in optuna.importance.get_param_importances(study).items()}

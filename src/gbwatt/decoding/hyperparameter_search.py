"""Search for the settings of a model on training and validation trials."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gbwatt._io import to_json, write_atomically
from gbwatt._processes import cores, run_in_processes
from gbwatt._validation import check_at_least, check_one_of, check_positive
from gbwatt.data import Trials
from gbwatt.data.loading import Recordings
from gbwatt.data.splits import Split, Splitter
from gbwatt.decoding.checkpoints import describe_data
from gbwatt.decoding.evaluation import (
    TRAINING_SETTINGS,
    ModelSetup,
    Subjects,
    TrainingResult,
    TrainingSetup,
    recording_fields,
    run_training,
)
from gbwatt.decoding.inputs import Examples, Sets
from gbwatt.decoding.paradigms import PARADIGMS
from gbwatt.decoding.search_space import Space, check_training_value, format_space, make_space, usual_settings
from gbwatt.decoding.search_study import (
    OBJECTIVES,
    PRUNING,
    Candidate,
    CandidateRunner,
    Objective,
    importances,
    open_study,
    quiet,
    read_candidates,
    require_optuna,
)
from gbwatt.errors import ParameterError
from gbwatt.models.registry import entry

if TYPE_CHECKING:
    import optuna

#: Number of candidates by default.
CANDIDATES = 30


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Candidates of a hyper-parameter search.

    Attributes
    ----------
    candidates : tuple of Candidate
        All candidates, in the order of the search.
    objective : "loss" or "balanced_accuracy"
    folds : int or None
        Number of folds of the cross-validation; None if candidates were scored on the validation trials.
    space : dict of str to Range or Choices
    importance : dict of str to float
        Importance of each setting, which sum to 1; empty with fewer than ten completed candidates.
    interrupted : bool
        Whether the search was ended by Ctrl-C.
    setup : TrainingSetup
        Data, model and fixed settings.
    """

    candidates: tuple[Candidate, ...]
    objective: str
    folds: int | None
    space: Space
    importance: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False
    setup: TrainingSetup = field(repr=False)

    @property
    def ranking(self) -> list[Candidate]:
        """Completed candidates, the best first."""
        sign = -1 if OBJECTIVES[self.objective] else 1
        completed = [candidate for candidate in self.candidates if candidate.score is not None]
        return sorted(completed, key=lambda candidate: sign * float(candidate.score or 0))

    @property
    def best(self) -> Candidate:
        """The best candidate.

        Raises
        ------
        ParameterError
            If no candidate was completed; the message has the reason why the first one failed.
        """
        if self.ranking:
            return self.ranking[0]
        if not self.candidates:
            raise ParameterError("no candidate was completed; use a longer timeout, or none.")
        failed = [candidate for candidate in self.candidates if candidate.status == "failed"]
        first = f"; the first failed: {failed[0].reason.rstrip('.')}" if failed else ""
        raise ParameterError(f"none of {len(self.candidates)} candidates was completed{first}. Change the space.")

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of :func:`train_and_evaluate` that train the best candidate.

        If the search was given Trials, ``data`` and ``split`` have to be added.
        """
        setup = self._best_setup()
        source: dict[str, Any] = {}
        if setup.split_number is not None:
            subjects = np.unique(setup.trials.subject).tolist()
            subject = subjects[0] if len(subjects) == 1 else subjects
            source = {"data": setup.dataset, "subject": subject, "split": setup.split_number}
            source |= {"protocol": setup.protocol.describe()} if setup.protocol else {}
            source |= {"root": str(setup.root)} if setup.root else {}
            source |= {"reading": dict(setup.reading)} if setup.reading else {}
        chosen = {"task": setup.task, "recipe": setup.recipe}
        given = {name: value for name, value in chosen.items() if value is not None}
        options = {"options": dict(setup.options)} if setup.options else {}
        return {**source, "model": setup.model, **given, **options, **setup.training, "seed": setup.seed}

    def _best_setup(self) -> TrainingSetup:
        """Data, model and settings of the best candidate."""
        return self.setup.with_settings(self.best.settings)

    def train(
        self,
        folder: str | Path | None = None,
        *,
        callbacks: Sequence[Any] = (),
        on_start: Callable[[TrainingSetup], None] | None = None,
    ) -> TrainingResult:
        """Train the best candidate as :func:`train_and_evaluate` does, test it once and save it.

        Parameters
        ----------
        folder : path, optional
            Folder to save the model and its record in.  Default: the model is not saved.
        callbacks : sequence of callbacks
        on_start : callable, optional
            Called with the :class:`TrainingSetup` before training.

        Returns
        -------
        TrainingResult
        """
        return run_training(self._best_setup().check_and_complete(), callbacks, on_start, folder)

    def to_dict(self) -> dict[str, Any]:
        """The candidates and all else that was found, as values that can be written as JSON."""
        return {
            "objective": self.objective,
            "folds": self.folds,
            "space": format_space(self.space),
            "interrupted": self.interrupted,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "best": self.ranking[0].number if self.ranking else None,
            "importance": dict(self.importance),
            "settings": self.arguments if self.ranking else None,
        }

    def to_csv(self, file: str | Path) -> None:
        """Write a table with a row for each candidate.

        Columns of settings are called ``settings.NAME``, and ``versions`` has JSON text.

        Parameters
        ----------
        file : path
        """
        text = io.StringIO()
        rows = [_table_row(candidate) for candidate in self.candidates]
        writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(Path(file), text.getvalue().encode())


def _table_row(candidate: Candidate) -> dict[str, Any]:
    """The row of a candidate in the table of :meth:`SearchResult.to_csv`."""
    values = {**candidate.to_dict(), "versions": to_json(dict(candidate.versions), indent=None)}
    settings = {f"settings.{name}": value for name, value in values.pop("settings").items()}
    return {"number": values.pop("number"), "status": values.pop("status"), **settings, **values}


def search(
    data: Recordings | Trials,
    model: str = "gbwatt",
    *,
    space: Mapping[str, Any] | Iterable[str] | None = None,
    subject: Subjects = None,
    split: int | Split = 0,
    protocol: str | Splitter | Mapping[str, Any] | None = None,
    task: str | None = None,
    recipe: str | None = None,
    options: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    folds: int | None = None,
    objective: str = "loss",
    n_candidates: int = CANDIDATES,
    timeout: float | None = None,
    pruning: str = "median",
    storage: str | Path | None = None,
    jobs: int = 1,
    seed: int = 0,
    on_start: Callable[[TrainingSetup, Space], None] | None = None,
    on_candidate: Callable[[Candidate], None] | None = None,
    root: str | Path | None = None,
    reading: Mapping[str, Any] | None = None,
) -> SearchResult:
    """Search for the settings of a model with Optuna; test trials are not used.

    A candidate is a set of settings.  It is trained on the training trials and scored on the validation trials, or in
    cross-validation.  Candidates are drawn by the tree-structured Parzen estimator, after ten random ones; the first
    candidate has the usual settings if the space contains them.  If the training of a candidate fails, for example
    because its loss is not finite, the reason is recorded and the search continues.

    The epoch is selected as in the final training: for the recipe "best" of gbwatt, the weights of the last epoch are
    scored.  Other networks use the epoch with the lowest loss of the validation trials.  Without ``folds``, the same
    trials select the epoch and score the candidate.

    Parameters
    ----------
    data, model, subject, split, protocol, task, recipe, options, root, reading
        As for :func:`train_and_evaluate`.  The paradigm of gbwatt with the recipe "best" must be known, from the data
        set or ``task``.
    space : mapping or iterable of str, optional
        Settings to vary: training settings (lr, batch_size, max_epochs, weight_decay, early_stopping, n_members) and
        options of the model.  ``{"lr": (1e-4, 1e-2, "log"), "n_segments": (1, 4), "shrinkage": [0, 0.1, 0.3]}`` has two
        ranges, the second one of whole numbers, and three choices.  Texts have the form of the command line:
        ``["lr=1e-4:1e-2:log", "n_segments=1:4", "shrinkage=0,0.1,0.3"]``.  Default: settings near the usual ones of the
        model, see :func:`~gbwatt.decoding.search_space.default_space`.
    options, training : dict, optional
        Fixed model options and training settings.  With the usual values of all others, they must give a valid model.
    folds : int, optional
        Score candidates in cross-validation with this many folds of the training trials; trials of a group are not
        divided.  Default: score them on the validation trials.
    objective : "loss" or "balanced_accuracy"
        Mean log loss, or mean recall of the classes.
    n_candidates : int
        Number of candidates, those in ``storage`` included.
    timeout : float, optional
        Number of seconds after which no candidate is started.
    pruning : "median", "halving" or "none"
        Stop a candidate whose results so far are worse than the median of the others, or by asynchronous successive
        halving.  Results are the losses after each epoch, or with ``folds`` the mean scores after each fold.
    storage : path, optional
        Journal file of Optuna.  The same call continues the search after an interruption; an interrupted candidate is
        trained again.  A file of another search raises an error.  Only one search at a time may use a file.
    jobs : int
        Number of processes; 0: one per core.  Several processes use one thread each.  With one process, the search is
        reproducible, also after interruptions.
    seed : int
        Random seed of the search, and of the training of all candidates.
    on_start : callable, optional
        Called with the :class:`TrainingSetup`, which has the split of the protocol, and the space after all checks.
    on_candidate : callable, optional
        Called with each new :class:`~gbwatt.decoding.search_study.Candidate`.

    Returns
    -------
    SearchResult
        After Ctrl-C, it has the completed candidates.

    Raises
    ------
    ParameterError
        If an argument is wrong.
    CheckpointError
        If ``storage`` belongs to another search.
    PackageError
        If Optuna is not installed.

    See Also
    --------
    train_and_evaluate : Train a model with given settings, and test it once.

    Examples
    --------
    >>> space = {"lr": (1e-3, 1e-1, "log"), "k": [6, 12]}
    >>> result = search("simulated-ssvep", "spdnet", space=space, training={"max_epochs": 1}, n_candidates=2)
    >>> [candidate.status for candidate in result.candidates], sorted(result.best.settings)
    (['done', 'done'], ['k', 'lr'])
    >>> result.train().evaluation.n  # the only use of the test trials
    100
    """
    require_optuna()
    _check_arguments(objective, pruning, n_candidates, timeout, jobs)
    entry(model)
    given = TrainingSetup(
        **recording_fields(data, subject, split, protocol, task, root, dict(reading or {})),
        model=model,
        recipe=recipe,
        options=dict(options or {}),
        training=_checked_training(training),
        seed=seed,
    )
    setup = given.check_and_complete()
    _require_paradigm(setup)
    chosen = make_space(setup, space)
    runner = CandidateRunner(
        _make_objective(given, setup, folds, objective), chosen, usual_settings(setup), pruning, seed
    )
    fingerprint = _fingerprint(given, setup, runner)
    with _open(runner, storage, fingerprint, jobs) as (study, file):
        if on_start is not None:
            on_start(replace(setup, split=given.split), chosen)
        interrupted = _run(runner, study, file, n_candidates, timeout, jobs or cores(), on_candidate)
        return SearchResult(
            candidates=tuple(read_candidates(study)),
            objective=objective,
            folds=folds,
            space=chosen,
            importance=importances(study),
            interrupted=interrupted,
            setup=given,
        )


# -------------------------------------------------------------------------------------------------------------- checks


def _check_arguments(objective: str, pruning: str, n_candidates: int, timeout: float | None, jobs: int) -> None:
    """Raise ParameterError for wrong arguments of :func:`search`, before any data are read."""
    check_one_of("objective", objective, tuple(OBJECTIVES))
    check_one_of("pruning", pruning, PRUNING)
    check_at_least("n_candidates", n_candidates, 1)
    check_at_least("jobs", jobs, 0)
    if timeout is not None:
        check_positive("timeout", timeout, "seconds")


def _checked_training(training: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fixed training settings; raise ParameterError for unknown names and wrong values."""
    for name, value in (training or {}).items():
        check_one_of("training", name, TRAINING_SETTINGS)
        check_training_value(name, value)
    return dict(training or {})


def _require_paradigm(setup: TrainingSetup) -> None:
    """Raise ParameterError if every candidate would have to compare the paradigms."""
    if setup.paradigm == "auto":
        raise ParameterError(
            f"task: the paradigm of {setup.dataset} is unknown, and every candidate would compare all of them; give "
            "task='mi', 'ssvep' or 'erp' (--task)."
        )


def _make_objective(given: TrainingSetup, setup: TrainingSetup, folds: int | None, name: str) -> Objective:
    """The objective, with the training and validation trials only.

    ``given`` has the split of the protocol; in ``setup``, validation trials may have joined the training trials.
    """
    rows = np.sort(np.concatenate([given.split.train, given.split.valid]))
    if folds is None and not len(given.split.valid):
        raise ParameterError(
            f"folds: the split {given.split.name!r} has no validation trials to score candidates on; give folds=5 "
            "(--folds 5) for cross-validation."
        )
    model = ModelSetup(**{item.name: getattr(setup, item.name) for item in fields(ModelSetup)})
    train, valid = (np.searchsorted(rows, part) for part in (given.split.train, given.split.valid))
    objective = Objective(model, given.trials[rows], train, valid, folds, name)
    objective.parts(model)  # raises an error for too many folds
    return objective


def _fingerprint(given: TrainingSetup, setup: TrainingSetup, runner: CandidateRunner) -> dict[str, Any]:
    """Everything that the candidates and their scores depend on, to recognise the storage of the same search."""
    objective = runner.objective
    parts = [objective.trials[rows] for rows in (objective.train, objective.valid)]
    examples = [Examples(torch.from_numpy(np.array(part.X)), torch.from_numpy(np.array(part.y))) for part in parts]
    paradigm = PARADIGMS.get(str(setup.paradigm))
    return {
        "format": 1,
        "data set": given.dataset,
        "subject": given.subject,
        "split": given.split.name,
        **describe_data(Sets(examples[0], examples[1] if len(examples[1]) else None)),
        "model": setup.model,
        "task": setup.task,
        "paradigm": None if paradigm is None else f"{setup.paradigm}, revision {paradigm.revision}",
        "recipe": setup.recipe,
        "options": setup.options,
        "training": setup.training,
        "folds": objective.folds,
        "objective": objective.name,
        "pruning": runner.pruning,
        "seed": runner.seed,
        "space": format_space(runner.space),
    }


# ----------------------------------------------------------------------------------------------------------- execution


@contextmanager
def _open(
    runner: CandidateRunner, storage: str | Path | None, fingerprint: Mapping[str, Any], jobs: int
) -> Iterator[tuple[optuna.Study, Path | None]]:
    """Open the study; without ``storage``, several processes share a temporary file."""
    with quiet(), TemporaryDirectory() as folder:
        file = None if storage is None else Path(storage)
        if file is None and jobs != 1:
            file = Path(folder) / "search.journal"
        yield open_study(runner, file, fingerprint), file


def _run(
    runner: CandidateRunner,
    study: optuna.Study,
    file: Path | None,
    n_candidates: int,
    timeout: float | None,
    jobs: int,
    on_candidate: Callable[[Candidate], None] | None,
) -> bool:
    """Run the candidates that the study lacks, and return whether Ctrl-C has ended the search."""
    finished = {candidate.number for candidate in read_candidates(study)}
    todo = [number for number in range(n_candidates) if number not in finished]
    deadline = None if timeout is None else time.time() + timeout
    if jobs == 1 or file is None:
        candidates = _run_in_turn(runner, study, todo, deadline)
    else:
        candidates = _run_in_parallel(runner, study, file, todo, deadline, jobs)
    try:
        with closing(candidates):
            for candidate in candidates:
                if on_candidate is not None:
                    on_candidate(candidate)
    except KeyboardInterrupt:
        return True
    return False


def _run_in_turn(
    runner: CandidateRunner, study: optuna.Study, todo: Sequence[int], deadline: float | None
) -> Generator[Candidate]:
    """Run candidates in this process, and yield them."""
    for number in todo:
        if deadline is not None and time.time() >= deadline:
            return
        yield runner.run(study, number)


def _run_in_parallel(
    runner: CandidateRunner, study: optuna.Study, file: Path, todo: Sequence[int], deadline: float | None, jobs: int
) -> Generator[Candidate]:
    """Run candidates in processes that share a file, and yield them; one whose process has died twice has failed."""
    work = partial(_run_in_worker, runner, file, deadline)
    with closing(run_in_processes(work, todo, jobs)) as results:
        for number, candidates in results:
            if candidates is None:
                yield runner.fail(study, number, "its process has died, perhaps for lack of memory")
            else:
                yield from candidates


def _run_in_worker(runner: CandidateRunner, file: Path, deadline: float | None, number: int) -> list[Candidate]:
    """Run a candidate in a worker process; return an empty list after the deadline."""
    if deadline is not None and time.time() >= deadline:
        return []
    with quiet():
        return [runner.run(open_study(runner, file), number)]

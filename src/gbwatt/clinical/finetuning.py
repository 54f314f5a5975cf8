"""Fine-tuning on a corpus that does not fit into memory, alone or as runs of an experiment."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.clinical.classifier import PretrainedClassifier
from gbwatt.clinical.corpora import Corpus, Part
from gbwatt.clinical.weights import NO_FILE, find_file
from gbwatt.data.datasets import data_root, find_source
from gbwatt.data.loading import find_dataset
from gbwatt.decoding.callbacks import Callback
from gbwatt.decoding.checkpoints import Checkpoint
from gbwatt.decoding.metrics import score
from gbwatt.decoding.sharding import OrderedWindows, ShardedBatches, Windows, gather
from gbwatt.decoding.training import Trainer, best_epoch, cosine_rate, isolated, start_epoch
from gbwatt.decoding.training_record import versions
from gbwatt.errors import NonFiniteLossError, PackageError, ParameterError, WeightsFileError
from gbwatt.experiments.runs import Row, Run, canonicalize
from gbwatt.models.registry import create

if TYPE_CHECKING:
    from accelerate import Accelerator

    from gbwatt.clinical import FoundationClassifier

Precision = Literal["float32", "bfloat16", "float16"]
_PRECISIONS: dict[str, Any] = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}  # names in accelerate


#: Defaults for each backbone, as in the code of its authors.  Learning rate, batch size, epochs and weight decay are
#: registered with the model.  Unlike in that code, BIOT's weight decay is decoupled, and early stopping uses the loss.
FINETUNING: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "biot": {"layer_decay": 1.0, "schedule": "constant", "early_stopping": 5},
        "labram": {"layer_decay": 0.65, "schedule": "cosine"},
    }
)
#: Warm-up of LaBraM as a fraction of all epochs, and its label smoothing with more than two classes.
WARMUP, SMOOTHING = 0.1, 0.1


def finetuning_of(backbone: str, n_classes: int, changes: Mapping[str, Any]) -> FineTuning:
    """Return the settings of a backbone for a number of classes: defaults and ``changes``, which has ``max_epochs``."""
    defaults = dict(FINETUNING[backbone])
    if backbone == "labram":
        defaults |= {"warmup_epochs": WARMUP * changes["max_epochs"], "label_smoothing": SMOOTHING * (n_classes > 2)}
    return FineTuning(**{**defaults, **changes})


@dataclass(frozen=True)
class FineTuning:
    """Settings of a fine-tuning, all of which influence the result.

    Attributes
    ----------
    lr : float
        Highest learning rate, that of the head.
    batch_size : int
        Windows per step, in all processes together.
    max_epochs : int
    weight_decay : float
        Decoupled weight decay of matrices that are not on a manifold.
    layer_decay : float
        Layer-wise learning-rate decay factor.
    schedule : "cosine" or "constant"
        Learning rate after the warm-up.
    warmup_epochs : float
        Epochs in which the learning rate rises from zero.
    label_smoothing : float
    precision : "float32", "bfloat16" or "float16"
        Precision of the backbone; SPD matrices are always in float32.
    shards : int
        Passes through the network per step; a multiple of the number of processes.
    seed : int
    early_stopping : int, optional
        Epochs without a lower validation loss after which training ends.
    """

    lr: float = 5e-4
    batch_size: int = 512
    max_epochs: int = 50
    weight_decay: float = 0.05
    layer_decay: float = 0.65
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: float = 0.0
    label_smoothing: float = 0.0
    precision: Precision = "float32"
    shards: int = 8
    seed: int = 0
    early_stopping: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_epochs", "shards"):
            check_at_least(name, getattr(self, name), 1)
        if self.early_stopping is not None:
            check_at_least("early_stopping", self.early_stopping, 1)
        check_one_of("schedule", self.schedule, ("cosine", "constant"))
        if not 0 <= self.warmup_epochs < self.max_epochs:
            raise ParameterError(
                f"warmup_epochs={self.warmup_epochs} must be 0 or more, and below max_epochs={self.max_epochs}."
            )
        check_at_least("seed", self.seed, 0)
        check_one_of("precision", self.precision, tuple(_PRECISIONS))
        for name, low, high in (("lr", 0, 1), ("layer_decay", 0, 1), ("weight_decay", -1e-300, 1)):
            if not low < getattr(self, name) <= high:
                raise ParameterError(f"{name}={getattr(self, name)} must be above {max(low, 0)}, at most {high}.")
        if not 0 <= self.label_smoothing < 1:
            raise ParameterError(f"label_smoothing={self.label_smoothing} must be in [0, 1).")

    def rate(self, step: int, steps: int) -> float:
        """Learning rate relative to the highest one at a step, counted from 0, with ``steps`` per epoch."""
        warmup = self.warmup_epochs * steps
        if self.schedule == "constant" and step >= warmup:
            return 1.0
        return cosine_rate(step, self.max_epochs * steps, warmup)


@dataclass
class Course:
    """History of a fine-tuning, and the weights of its best epoch.

    A row has ``epoch``, ``train_loss``, ``valid_loss``, ``valid_accuracy`` (balanced), ``lr``, ``duration`` in seconds
    and ``step_losses``.
    """

    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    @property
    def best_epoch(self) -> int:
        """Number, from 1, of the epoch with the lowest validation loss."""
        return best_epoch(self.history)


#: Called after every step with epoch, step and steps per epoch, from 1, and the loss; after every epoch with its row.
StepWatch = Callable[[int, int, int, float], None]
EpochWatch = Callable[[Mapping[str, Any]], None]


class _StepCallback(Callback):
    """Callback that calls ``on_step`` after each training step, and adds the losses of the steps to the history."""

    def __init__(self, on_step: StepWatch | None) -> None:
        self.on_step = on_step

    def on_batch_end(self, net: Trainer, training: bool = True, **_: Any) -> None:
        """Call ``on_step`` with epoch, step, number of steps and loss."""
        if training and self.on_step is not None:
            self.on_step(len(net.history), net.step, net.n_steps, net.losses[-1])

    def on_epoch_end(self, net: Trainer, **_: Any) -> None:
        """Add the losses of all steps to the row of the epoch."""
        net.history.record("step_losses", net.losses)


class _EpochCallback(Callback):
    """Callback that calls ``on_epoch`` with the row of each epoch."""

    def __init__(self, on_epoch: EpochWatch | None) -> None:
        self.on_epoch = on_epoch

    def on_epoch_end(self, net: Trainer, **_: Any) -> None:
        """Call ``on_epoch`` with the row of the epoch."""
        if self.on_epoch is not None:
            self.on_epoch(net.history[-1])


def make_accelerator(precision: Precision = "float32") -> Accelerator:
    """An accelerator for the processes and the device that accelerate, or torchrun, has set up."""
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
    except ImportError as error:
        raise PackageError.missing("accelerate", "training on a corpus", "clinical") from error
    # without cpu=True the processes of torchrun would not find each other on CPUs
    cpu = not torch.cuda.is_available() and not torch.backends.mps.is_available()
    if precision == "float16" and cpu:
        raise ParameterError("precision='float16' needs a GPU; on a CPU use 'bfloat16' or 'float32'.")
    mixed = _PRECISIONS[precision]
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != mixed:
        AcceleratorState._reset_state()  # it keeps one precision per process, which may train twice
    return Accelerator(mixed_precision=mixed, cpu=cpu)


def finetune(
    model: FoundationClassifier,
    train: Windows,
    valid: Windows,
    settings: FineTuning,
    *,
    accelerator: Any = None,
    checkpoint: str | Path | None = None,
    save_every: int = 0,
    fingerprint: Mapping[str, Any] | None = None,
    workers: int = 0,
    on_step: StepWatch | None = None,
    on_epoch: EpochWatch | None = None,
) -> Course:
    """Train a classifier, and leave it with the weights of its best epoch.

    The result depends on model, windows and settings only: each shard has its own random stream, so one process,
    several, or an interrupted and resumed training give the same numbers up to rounding.

    Parameters
    ----------
    model : FoundationClassifier
    train, valid : Windows
        For example parts of a :class:`~gbwatt.clinical.corpora.Corpus`.
    settings : FineTuning
    accelerator : accelerate.Accelerator or SingleProcess, optional
        By default the result of :func:`make_accelerator`.
    checkpoint : path, optional
        Folder for the state; a call with the same arguments resumes interrupted training.
    save_every : int
        Steps between checkpoints within an epoch; 0: one checkpoint per epoch.
    fingerprint : mapping, optional
        Further facts that the result depends on, such as data and weights; a checkpoint with others is refused.
    workers : int
        Processes that read ahead.
    on_step, on_epoch : callable, optional
        Called after every step and every epoch.

    Returns
    -------
    Course
    """
    check_at_least("save_every", save_every, 0)
    accelerator = make_accelerator(settings.precision) if accelerator is None else accelerator
    _require_classes(model, train, valid)
    batches = ShardedBatches(train, settings.batch_size, settings.shards, accelerator, workers)
    identity = {**asdict(settings), **_training_identity(model, train, valid), **(fingerprint or {})}
    saving = None if checkpoint is None else Checkpoint(checkpoint, identity, save_every)
    callbacks = [_StepCallback(on_step), saving, _EpochCallback(on_epoch)]
    with isolated(accelerator.device):
        net = _trainer(model, settings, [callback for callback in callbacks if callback is not None], accelerator)
        if saving is not None:
            saving.restore(net, len(batches.sizes))
        try:
            net.fit(batches, OrderedWindows(valid, settings.batch_size, accelerator, workers))
        except NonFiniteLossError as error:
            if settings.precision != "float32":
                error.add_note(f"precision={settings.precision!r} may be the cause; try precision='float32'.")
            raise
    accelerator.unwrap_model(net.model, keep_fp32_wrapper=False)  # from now on it computes as it is saved
    return Course(list(net.history), {name: x.detach().cpu().clone() for name, x in model.state_dict().items()})


def _trainer(model: FoundationClassifier, settings: FineTuning, callbacks: list[Callback], accelerator: Any) -> Trainer:
    """Make the trainer of a classifier from the settings."""
    return Trainer(
        model,
        lr=settings.lr,
        batch_size=settings.batch_size,
        max_epochs=settings.max_epochs,
        weight_decay=settings.weight_decay,
        seed=settings.seed,
        label_smoothing=settings.label_smoothing,
        early_stopping=settings.early_stopping,
        schedule=settings.rate,
        group_options=group_options(model, settings),
        decoupled_decay=True,
        balanced_accuracy=True,
        callbacks=callbacks,
        accelerator=accelerator,
    )


def group_options(model: FoundationClassifier, settings: FineTuning) -> dict[str, Any]:
    """Arguments of :func:`~gbwatt.nn.optim.parameter_groups` for layer-wise learning rates."""
    return {"stages": model.stages(), "stage_decay": settings.layer_decay, "decay_vectors": False}


def _require_classes(model: FoundationClassifier, train: Windows, valid: Windows) -> None:
    """Raise ParameterError if a part has no windows, or labels beyond the outputs of the model."""
    n_outputs = model.final_layer.out_features
    for name, part in (("train", train), ("valid", valid)):
        if not len(part):
            raise ParameterError(f"{name!r} has no windows.")
        low, high = int(np.min(part.labels)), int(np.max(part.labels))
        if low < 0 or high >= n_outputs:
            raise ParameterError(
                f"{name!r} has labels from {low} to {high}; with n_outputs={n_outputs} of the model they must be from "
                f"0 to {n_outputs - 1}."
            )


def _training_identity(model: nn.Module, train: Windows, valid: Windows) -> dict[str, str]:
    """Hashes of parameter shapes and labels, which tell trainings with the same settings apart in a checkpoint."""
    parameters = [(name, tuple(p.shape), p.requires_grad) for name, p in model.named_parameters()]
    labels = [hashlib.sha256(np.asarray(part.labels).tobytes()).hexdigest()[:16] for part in (train, valid)]
    return {
        "parameters": hashlib.sha256(repr(parameters).encode()).hexdigest()[:16],
        "training windows": f"{len(train)}, labels {labels[0]}",
        "validation windows": f"{len(valid)}, labels {labels[1]}",
    }


@torch.no_grad()
def predict(
    model: nn.Module, windows: Windows, batch_size: int, accelerator: Any, workers: int = 0
) -> NDArray[np.float32]:
    """Logits (n, n_outputs) of all windows, in every process; each computes a part of them."""
    training = model.training
    model.eval()
    pairs = OrderedWindows(windows, batch_size, accelerator, workers)
    logits = gather(accelerator, [model(x).float().cpu().numpy() for x, _ in pairs])
    model.train(training)
    return np.concatenate(logits)


#: Folders beside the recordings: pretrained weights of backbones, and checkpoints of unfinished runs.
WEIGHTS, CHECKPOINTS = "weights", "checkpoints"
SEPARATOR = "+"  # between the fingerprint of a corpus and that of weights
SAVE_EVERY = 200  # steps between checkpoints
TIMED_WINDOWS = 16  # batch size of the steps that are timed


class CorpusExecutor:
    """Executes runs of experiments on corpora; see :class:`gbwatt.experiments.runs.Executor`."""

    def fingerprint(self, dataset: str, root: str | Path | None = None) -> str:
        """Return the hash of the windows of a corpus."""
        return open_corpus(dataset, root).fingerprint[:16]

    def extend_fingerprint(self, data: str, options: Mapping[str, Any], root: str | Path | None = None) -> str:
        """Append the hash of the weights file to the fingerprint of a corpus, if the options name one."""
        weights = options.get("weights")
        if weights is None or weights in NO_FILE:
            return data
        try:
            content = find_file(weights_file(weights, root)).read_bytes()
        except WeightsFileError:  # the run will report it
            return f"{data}{SEPARATOR}absent"
        return f"{data}{SEPARATOR}{hashlib.sha256(content).hexdigest()[:16]}"

    def base_fingerprint(self, data: str) -> str:
        """Return the part of a fingerprint that belongs to the corpus.

        Examples
        --------
        >>> CorpusExecutor().base_fingerprint("0123456789abcdef+fedcba9876543210")
        '0123456789abcdef'
        """
        return data.partition(SEPARATOR)[0]

    def execute(self, run: Run, root: str | Path | None = None) -> Row:
        """Train, resuming from the checkpoint of the run if there is one, and test once."""
        _require_supported_run(run)
        corpus = open_corpus(run.dataset, root)
        settings = settings_of(run.model, corpus, run.training, run.seed)
        accelerator = make_accelerator(settings.precision)
        model = make_classifier(run.model, corpus, _with_weights_path(run.options, root), run.seed)
        result = train_and_test(model, corpus, settings, accelerator, checkpoint_folder(run, root))
        return row_of(run, result, corpus, model, environment(model, accelerator))

    def epoch_seconds(self, run: Run, root: str | Path | None = None) -> float:
        """Extrapolate the duration of an epoch from the second of two steps on a few windows."""
        _require_supported_run(run)
        corpus = open_corpus(run.dataset, root)
        train, valid = (corpus.part(name) for name in ("train", "valid"))
        size = min(TIMED_WINDOWS, len(train) // 2)
        changes: dict[str, Any] = {"max_epochs": 1, "warmup_epochs": 0.0, "batch_size": size, "shards": 1}
        settings = replace(settings_of(run.model, corpus, run.training, run.seed), **changes)
        times = [time.perf_counter()]
        model = make_classifier(run.model, corpus, _with_weights_path(run.options, root), run.seed)
        finetune(
            model,
            _FirstWindows(train, 2 * size),
            _FirstWindows(valid, 1),
            settings,
            on_step=lambda *_: times.append(time.perf_counter()),
        )
        per_window = (times[-1] - times[-2]) / size
        return per_window * (len(train) + len(valid) / 3)  # a forward pass takes a third of a step

    def discard_checkpoint(self, run: Run, root: str | Path | None = None) -> None:
        """Delete the checkpoint of a finished run."""
        shutil.rmtree(checkpoint_folder(run, root), ignore_errors=True)


#: The executor of all corpora.
EXECUTOR = CorpusExecutor()


class _FirstWindows:
    """The first ``n`` windows of a part, to estimate the duration of an epoch."""

    def __init__(self, part: Part, n: int) -> None:
        self.part, self.labels = part, part.labels[:n]

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: Any) -> Any:
        """Return the windows and labels at these indices."""
        return self.part.read(indices)


def open_corpus(name: str, root: str | Path | None = None) -> Corpus:
    """Open the cache of a corpus in its folder below that of the recordings."""
    _, (manifest,) = find_source(find_dataset(name), 1, root, None)
    return Corpus.open(manifest.parent)


def weights_file(name: str, root: str | Path | None = None) -> Path:
    """Return the path of a weights file, or of a folder of a model hub, in the folder of weights."""
    return data_root(root) / WEIGHTS / name


def checkpoint_folder(run: Run, root: str | Path | None = None) -> Path:
    """Return the folder of a run's checkpoint."""
    return data_root(root) / CHECKPOINTS / run.key


def _with_weights_path(options: Mapping[str, Any], root: str | Path | None) -> dict[str, Any]:
    """Replace the name of a weights file in the options by its path."""
    name = options.get("weights")
    if name is None or name in NO_FILE:
        return dict(options)
    return {**options, "weights": weights_file(name, root)}


def _require_supported_run(run: Run) -> None:
    """Raise ParameterError unless a run on a corpus has a foundation model, all training windows and no added noise."""
    if run.model not in FINETUNING:
        raise ParameterError(
            f"model={run.model!r} cannot be trained on {run.dataset}, which does not fit into memory; use "
            f"{' or '.join(FINETUNING)}."
        )
    for name, value, usual in (("fraction", run.fraction, 1.0), ("noise", run.noise, 0.0)):
        if value != usual:
            raise ParameterError(f"{name}={value:g} is not supported for runs on {run.dataset}; leave it out.")


# -------------------------------------------------------------------------------------------------- training and result


class FineTuningResult(NamedTuple):
    """The course of a training, and the scores on the official evaluation part by the columns of a row."""

    course: Course
    scores: dict[str, Any]


def settings_of(model: str, corpus: Corpus, training: Mapping[str, Any], seed: int) -> FineTuning:
    """Return the training settings of a backbone on a corpus; ``training`` overrides its defaults."""
    return finetuning_of(model, len(corpus.class_names), {**training, "seed": seed})


def make_classifier(name: str, corpus: Corpus, options: Mapping[str, Any], seed: int) -> PretrainedClassifier:
    """Build a model for the windows of a corpus, with initial weights that depend on the seed alone."""
    cpu = torch.device("cpu")
    with isolated(cpu):
        start_epoch(seed, 0, cpu)
        model = create(
            name,
            n_chans=len(corpus.ch_names),
            n_outputs=len(corpus.class_names),
            n_times=corpus.n_times,
            sfreq=corpus.sfreq,
            ch_names=corpus.ch_names,
            **options,
        )
    assert isinstance(model, PretrainedClassifier)
    return model


def train_and_test(
    model: PretrainedClassifier,
    corpus: Corpus,
    settings: FineTuning,
    accelerator: Any,
    checkpoint: Path,
    save_every: int = SAVE_EVERY,
    workers: int = 0,
    on_epoch: EpochWatch | None = None,
) -> FineTuningResult:
    """Train on the windows of a corpus, resuming from a checkpoint if there is one, and test once."""
    train, valid, test = (corpus.part(name) for name in ("train", "valid", "eval"))
    course = finetune(
        model,
        train,
        valid,
        settings,
        accelerator=accelerator,
        checkpoint=checkpoint,
        save_every=save_every,
        fingerprint={"data": corpus.fingerprint, "model": model.config, "weights": model.initialisation},
        workers=workers,
        on_epoch=on_epoch,
    )
    logits = predict(model, test, settings.batch_size, accelerator, workers)
    return FineTuningResult(course, score_logits(logits, test.labels, corpus.class_names))


def score_logits(logits: Any, labels: Any, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Return the scores of logits (n, n_outputs), by the names of the columns of a row of results."""
    probability = scipy.special.softmax(logits.astype(np.float64), axis=1)
    scores = score(labels, probability, np.arange(len(class_names)), class_names)
    return {name: value for name, value in scores.items() if name in Row._fields}


def environment(model: PretrainedClassifier, accelerator: Any) -> dict[str, str]:
    """Describe the environment of a training, as recorded with its results, in the column ``versions`` of a row.

    The entries are package versions, the name of the initial weights, and the number of processes and their type of
    device, such as "2 × cuda".
    """
    processes = f"{accelerator.num_processes} × {accelerator.device.type}"
    return {**versions(), "weights": model.initialisation, "processes": processes}


def row_of(
    run: Run, result: FineTuningResult, corpus: Corpus, model: PretrainedClassifier, environment: dict[str, str]
) -> Row:
    """Return the row of results of a finished run."""
    course = result.course
    best = course.history[course.best_epoch - 1]
    columns = ("train_loss", "valid_loss", "valid_accuracy")
    parts = {"train": "train", "valid": "valid", "test": "eval"}
    return Row(
        run.key,
        "done",
        run.to_dict(),
        **result.scores,
        valid_accuracy=best["valid_accuracy"],
        valid_loss=best["valid_loss"],
        best_epoch=course.best_epoch,
        epochs=len(course.history),
        history={name: [float(f"{epoch[name]:.5g}") for epoch in course.history] for name in columns},
        trials={name: len(corpus.part(part)) for name, part in parts.items()},
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        preprocessing=list(corpus.header["steps"]),
        seconds_per_epoch=float(np.median([epoch["duration"] for epoch in course.history])),
        versions=environment,
    )


def run_of(
    corpus: Corpus, model: PretrainedClassifier, options: Mapping[str, Any], training: Mapping[str, Any], seed: int
) -> Run:
    """Describe a single training as a run of an experiment, so that a store can hold its result."""
    options = {name: value for name, value in options.items() if value is not False}
    data = corpus.fingerprint[:16]
    if model.report is not None:
        options["weights"] = Path(model.report.source).name
        data = f"{data}{SEPARATOR}{model.report.sha256[:16]}"
    return Run(
        corpus.name,
        1,
        model.name,
        seed=seed,
        data=data,
        options={name: canonicalize(value) for name, value in options.items()},
        training={name: canonicalize(value) for name, value in training.items()},
    )

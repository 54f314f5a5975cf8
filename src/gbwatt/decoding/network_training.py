"""Training of the network of a decoder, or of all networks of its ensemble, here or in worker processes."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from gbwatt._processes import cores, ignore_interrupts, run_in_processes
from gbwatt.decoding.callbacks import Callback, CSVLog, EpochDisplay, TensorBoardLog
from gbwatt.decoding.checkpoints import Checkpoint, describe_data
from gbwatt.decoding.initialization import adapt_domains, initialize_classically
from gbwatt.decoding.inputs import Examples, Sets, on_device
from gbwatt.decoding.paradigms import PRETRAINED, Settings
from gbwatt.decoding.sharding import hash_numbers
from gbwatt.decoding.training import OrderedBatches, ShuffledBatches, Trainer, isolated
from gbwatt.decoding.transfer import initialize_from
from gbwatt.errors import ParameterError, WorkerError
from gbwatt.models.registry import entry, to_record
from gbwatt.nn.optim import require_parts

if TYPE_CHECKING:
    from gbwatt.decoding.estimator import EEGDecoder


class Prepared(NamedTuple):
    """A network that is ready for training: its trainer, and the batches for training and validation."""

    trainer: Trainer
    train: ShuffledBatches
    valid: OrderedBatches | None

    def fit(self) -> None:
        """Train the network."""
        self.trainer.fit(self.train, self.valid)


class TrainedNetwork(NamedTuple):
    """A trained network, or the error that ended its training."""

    module: nn.Module | None
    history: list[dict[str, Any]]
    error: Exception | None = None


@dataclass(frozen=True)
class NetworkTraining:
    """The training of the networks of a decoder.

    Attributes
    ----------
    decoder : EEGDecoder
        Its parameters, and the attributes of the signal, the classes, the scale and the domains.
    settings : Settings
    sets : Sets
        Aligned training and validation data, in the unit of the recordings.
    class_weights : Tensor (n_classes,) or None
    sources : sequence of EEGDecoder
        Decoders whose weights are the initial ones; none for other initial weights.
    previous : sequence of nn.Module
        Networks whose training continues, one for each network; none for a training from the beginning.
    kind : "fit", "update" or "fold"
        "update" keeps the statistics of all normalisations.  Only "fit" has checkpoints and logs, and "fold", for
        cross-validation, has no callbacks either.
    classical : bool
        Whether the model is a classical pipeline, which is fitted without gradient steps.
    options_record : dict
        Model options as they are recorded.
    """

    decoder: EEGDecoder
    settings: Settings
    sets: Sets
    class_weights: Tensor | None = None
    sources: Sequence[EEGDecoder] = ()
    previous: Sequence[nn.Module] = ()
    kind: str = "fit"
    classical: bool = False
    options_record: dict[str, Any] | None = None

    @classmethod
    def of(cls, decoder: EEGDecoder, settings: Settings, sets: Sets, **fields: Any) -> NetworkTraining:
        """The training, with what the registry of models says, which may differ in other processes."""
        record = to_record(decoder.model, settings.options)
        classical = entry(decoder.model).classical
        return cls(decoder, settings, sets, classical=classical, options_record=record, **fields)

    # ---- one network

    def build(self, number: int) -> nn.Module:
        """The network with this number, from 0, before the initial weights are set."""
        if self.previous:
            return copy.deepcopy(self.previous[number])
        return self.decoder._build(self.decoder.signal_, self.settings, self._seed(number))

    def prepare(self, number: int, module: nn.Module) -> Prepared:
        """Set the initial weights of a network, and return its data and its trainer, in the state of its checkpoint."""
        sets = self.sets.to(precision(module), self.decoder.scale_)
        sets = sets.merged() if self.classical else sets
        self._initialize(number, module, sets.train)
        batch_size = self.settings.training.batch_size
        train = ShuffledBatches(sets.train, batch_size, self.decoder.device, single=self.kind == "update")
        valid = None if sets.valid is None else OrderedBatches(sets.valid, 2 * batch_size)
        return Prepared(self._trainer(number, module, sets, len(train.sizes)), train, valid)

    def train_all(self, on_prepared: Callable[[Trainer], None] | None = None) -> list[Trainer]:
        """Train all networks in this process, one after the other.

        ``on_prepared`` is called before the training of the first network.
        """
        trainers: list[Trainer] = []
        for number in range(self.settings.n_members):
            prepared = self.prepare(number, self.build(number))
            trainers.append(prepared.trainer)
            if number == 0 and on_prepared is not None:
                on_prepared(prepared.trainer)
            prepared.fit()
        return trainers

    def _initialize(self, number: int, module: nn.Module, train: Examples) -> None:
        """Set the initial weights of a network, unless they are random; classical pipelines are fitted."""
        decoder, weights = self.decoder, self.class_weights
        if self.previous:
            _adapt_to_new_domains(module, train)
        elif self.classical:
            given = (weights,) if train.weight is None else (weights, train.weight)  # plugins may lack the second
            module.fit(train.x, train.y, *given)  # type: ignore[operator]
        elif self.sources:
            source = self.sources[number % len(self.sources)]
            channels = None if decoder.recorded_ is None else decoder.recorded_.ch_names
            names = tuple(map(str, decoder.classes_.tolist())) if decoder._names is None else decoder._names
            initialize_from(
                module, source, train.x, train.y, channels, names, weights, train.domain, sample_weight=train.weight
            )
        elif self.settings.initialization == "classical":
            initialize_classically(module, train.x, train.y, weights, train.domain, train.weight)
        else:
            adapt_domains(module, train.x, train.domain)

    def restored(self) -> Trainer:
        """A trainer of the first network with the best weights in its checkpoint, for interrupted training."""
        trainer = self.prepare(0, self.build(0)).trainer
        trainer.module_.load_state_dict(trainer.best_weights or trainer.module_.state_dict())
        return trainer

    def _seed(self, number: int) -> int:
        """Random seed of the network with this number; the first one has that of the decoder."""
        seed = int(self.decoder.seed)
        seed = hash_numbers(seed, number) if number else seed
        if not self.previous:
            return seed
        return hash_numbers(seed, int(_digest(self.previous[number])[:16], 16))  # another order of trials each time

    def _trainer(self, number: int, module: nn.Module, sets: Sets, n_steps: int) -> Trainer:
        """A trainer of the network with this number, with all callbacks, in the state of its checkpoint if any."""
        decoder, seed, checkpoint = self.decoder, self._seed(number), None
        if self.kind == "fit" and decoder.checkpoint is not None:
            fingerprint = self._fingerprint(module, sets, seed)
            checkpoint = Checkpoint(member_path(decoder.checkpoint, number), fingerprint)
        callbacks: list[Callback] = []
        if self.kind == "fit" and decoder.log is not None:
            callbacks.append(CSVLog(member_path(decoder.log, number)))
        if self.kind == "fit" and decoder.tensorboard is not None:
            callbacks.append(TensorBoardLog(member_path(decoder.tensorboard, number)))
        if self.kind != "fold":
            callbacks += [EpochDisplay()] if decoder.verbose else []
            callbacks += [] if checkpoint is None else [checkpoint]
            callbacks += list(decoder.callbacks or ())
        factors = dict(decoder.layer_lr or {})
        require_parts("layer_lr", factors, module)
        trainer = decoder._make_trainer(
            module,
            self.settings,
            self.class_weights,
            callbacks,
            seed,
            keep_initial=bool(self.previous) or self.settings.initialization != "random",
            frozen=tuple(decoder.frozen or ()),
            group_options={"factors": factors} if factors else None,
            fixed_statistics=self.kind == "update",
        )
        if checkpoint is not None:
            checkpoint.restore(trainer, n_steps)
        return trainer

    def _fingerprint(self, module: nn.Module, sets: Sets, seed: int) -> dict[str, Any]:
        """Everything that the weights of a network with this seed depend on.

        ``max_epochs`` may be raised, unless the learning rate depends on it.
        """
        decoder, settings, training = self.decoder, self.settings, self.settings.training
        cosine = {"schedule": "cosine", "max_epochs": training.max_epochs} if settings.schedule == "cosine" else {}
        given = bool(self.previous) or settings.initialization == PRETRAINED
        return {
            "model": decoder.model,
            "task": decoder.task,
            **({} if settings.paradigm is None else {"paradigm": settings.paradigm}),
            "options of the model": self.options_record,
            "lr": training.lr,
            "batch_size": training.batch_size,
            "weight_decay": training.weight_decay,
            **cosine,
            "early_stopping": decoder.early_stopping,
            "class weights": None if self.class_weights is None else self.class_weights.tolist(),
            **({} if settings.initialization == "random" else {"initialization": settings.initialization}),
            **({} if decoder.alignment is None else {"alignment": decoder.alignment}),
            **({} if not decoder.frozen else {"frozen": list(decoder.frozen)}),
            **({} if not decoder.layer_lr else {"layer_lr": dict(decoder.layer_lr)}),
            **({"initial weights": _digest(module)} if given else {}),
            "seed": seed,
            "device": str(decoder.device),
            "sfreq": decoder.sfreq,
            **describe_data(sets),
        }

    # ---- all networks, in processes

    def train_in_processes(self, workers: int, finished: dict[int, TrainedNetwork]) -> None:
        """Train all networks in processes, and add them to ``finished`` by their numbers.

        The networks are built here, because models may be registered in this process only.

        Raises
        ------
        ParameterError
            If something that the processes need cannot be sent to them.
        WorkerError
            If the process of a network has died twice.
        """
        displays = [one for one in self.decoder.callbacks or () if isinstance(one, EpochDisplay)]
        displays += [EpochDisplay()] if self.decoder.verbose else []
        displays = [] if self.kind == "fold" else displays
        n = self.settings.n_members
        modules = [self.build(number) for number in range(n)]
        work = partial(_train_in_worker, self._to_send(), modules)
        with closing(_results(work, n, workers)) as results:
            for number, trained in results:
                if trained is None:
                    raise WorkerError(
                        f"the process that trained network {number + 1} of {n} has died twice, perhaps for lack of "
                        f"memory; lower n_jobs={self.decoder.n_jobs}."
                    )
                if trained.error is not None:
                    trained.error.add_note(f"This was in network {number + 1} of {n}.")
                    raise trained.error
                finished[number] = trained
                for display in displays:
                    display.show_network(number, n, trained.history)

    def _to_send(self) -> NetworkTraining:
        """A copy with what the processes need of the decoder; progress is shown by this process."""
        decoder = copy.copy(self.decoder)
        decoder.__dict__.pop("net_", None)
        decoder.verbose = 0
        decoder.callbacks = [one for one in decoder.callbacks or () if not isinstance(one, EpochDisplay)]
        for callback in decoder.callbacks:
            _require_picklable(callback)
        return replace(self, decoder=decoder)


def _results(work: Any, n: int, workers: int) -> Generator[tuple[int, TrainedNetwork | None]]:
    """Train networks 0 to n - 1, and yield each with its number when it is done."""
    threads = max(1, min(torch.get_num_threads(), cores() // workers))
    return run_in_processes(work, range(n), workers, threads, initializer=ignore_interrupts)


def _train_in_worker(training: NetworkTraining, modules: Sequence[nn.Module], number: int) -> TrainedNetwork:
    """Train a network in a worker process; errors are returned, so that the caller knows which network they are of."""
    try:
        with isolated(on_device(training.decoder.device)):
            prepared = training.prepare(number, modules[number])
            prepared.fit()
    except Exception as error:
        return TrainedNetwork(None, [], error)
    return TrainedNetwork(modules[number].cpu(), list(prepared.trainer.history))


def _require_picklable(callback: Callback) -> None:
    """Raise ParameterError for a callback that cannot be sent to a process."""
    from loky.backend.reduction import dumps

    try:
        dumps(callback)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ParameterError(
            f"callbacks has {type(callback).__name__}, which cannot be sent to the processes of n_jobs ({error}); use "
            "n_jobs=1, or open files and connections in on_train_begin."
        ) from error


# ------------------------------------------------------------------------------------------------------------- details


def count_processes(n_jobs: int | None, n_tasks: int) -> int:
    """Number of processes for ``n_jobs`` as in scikit-learn: -1 is one for each core, -2 one less, and so on.

    Examples
    --------
    >>> count_processes(None, 5), count_processes(3, 5), count_processes(8, 5)
    (1, 3, 5)
    """
    number = 1 if n_jobs is None else n_jobs if n_jobs > 0 else max(1, cores() + 1 + n_jobs)
    return min(number, n_tasks)


def member_path(path: str | Path, number: int) -> Path:
    """Path of a file or folder of the network with this number, from 0: ``log.csv``, ``log-2.csv`` and so on."""
    path = Path(path)
    return path.with_name(f"{path.stem}-{number + 1}{path.suffix}") if number else path


def precision(module: nn.Module) -> torch.dtype:
    """The dtype of the parameters of a model, to which its input is converted."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def logits_of(net: Trainer, examples: Examples, known: Tensor | None) -> Tensor:
    """Logits of other examples; domains that are not among the ``known`` ones (n,) are estimated from them."""
    if examples.domain is None or known is None:
        return net.forward(examples.x)
    unseen = ~torch.isin(examples.domain, known)
    if bool(unseen.any()):
        adapt_domains(net.module_, examples.x[unseen].to(net.device), examples.domain[unseen].to(net.device))
    return net.forward(examples.x, examples.domain)


def _adapt_to_new_domains(module: Any, train: Examples) -> None:
    """Estimate the statistics of domains that a trained network does not know; others stay as they are."""
    if train.domain is not None:
        new = train.domain >= module.domain_norm.n_domains
        if bool(new.any()):
            device = next(module.parameters()).device
            module.adapt(train.x[new].to(device), train.domain[new].to(device))


def _digest(module: nn.Module) -> str:
    """SHA-256 of the weights of a network."""
    content = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        content.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return content.hexdigest()

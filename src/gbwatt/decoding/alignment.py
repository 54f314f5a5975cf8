"""Alignment of recordings: transformers that whiten the channels of each subject or session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gbwatt._validation import check_one_of
from gbwatt.data.trials import Trials, in_order
from gbwatt.decoding.initialization import FLOOR, inverse_root, mean_covariance
from gbwatt.decoding.inputs import Array, gathered, read_epochs
from gbwatt.decoding.signal_metadata import ALIGNMENT
from gbwatt.errors import NotSPDError, ParameterError, ShapeError
from gbwatt.geometry.linalg import congruence
from gbwatt.nn.attention import FIXED

#: What a domain is: the trials of a subject, or of a session of a subject.
DOMAINS = ("subject", "session")
#: Metrics of :class:`RiemannianAlignment`.
METRICS = ("affine-invariant", "bures-wasserstein", "log-euclidean")
#: Smallest number of unlabelled trials for the mean covariance of a new domain.  Fewer trials would determine their own
#: mean, so that whitening would remove what distinguishes them.
FEWEST_TRIALS = 5


def domain_names(X: Any, groups: Any = None, by: str = "subject") -> Array:
    """Domain of each trial (n,).

    Parameters
    ----------
    X : array, Trials or mne.Epochs
    groups : array (n,), optional
        Names of the domains, which take precedence.
    by : "subject" or "session"
        Domains of Trials, and of epochs with a column of this name in their metadata.  A session is named
        "subject/session", because different subjects have sessions of the same name.

    Returns
    -------
    array (n,)
        None for all trials of arrays, and of epochs without such metadata.

    Examples
    --------
    >>> trials = Trials(X=np.zeros((2, 1, 9)), y=[0, 1], class_names="ab", ch_names=["Oz"], sfreq=9, session=["a", "b"])
    >>> domain_names(trials).tolist(), domain_names(trials, by="session").tolist()
    ([1, 1], ['1/a', '1/b'])
    """
    check_one_of("by", by, DOMAINS)
    if groups is None:
        return _stored_domains(X, by)
    names = np.asarray(groups)
    if names.shape != (len(X),):
        raise ShapeError(f"'groups' has shape {names.shape}; it needs one entry for each of the {len(X)} trials.")
    return names


def _stored_domains(X: Any, by: str) -> Array:
    """Domains (n,) from Trials, or from the metadata of epochs; None for all trials if they are unknown."""
    metadata = {} if (stored := getattr(X, "metadata", None)) is None else stored
    fields = {name: getattr(X, name) for name in DOMAINS} if isinstance(X, Trials) else metadata
    if by not in fields:
        if by == "session" and hasattr(X, "get_data"):
            raise ParameterError("by='session': the trials have no sessions; add a column 'session' to their metadata.")
        return np.full(len(X), None, dtype=object)
    if by == "subject" or "subject" not in fields:
        return np.asarray(fields[by])
    return np.array([f"{subject}/{session}" for subject, session in zip(*(fields[d] for d in DOMAINS), strict=True)])


#: What to do if the trials of a domain are too few.
_MORE_TRIALS = "Give more of its trials, without labels, to fit or adapt first; single trials can be used afterwards."


def require_enough(x: Array, name: Any, remedy: str = _MORE_TRIALS) -> None:
    """Raise ShapeError if the unlabelled trials of a domain are too few to estimate its mean covariance."""
    n, n_chans, n_times = x.shape
    needed = max(FEWEST_TRIALS, -(-n_chans // max(1, n_times - 1)))
    if n < needed:
        raise ShapeError(
            f"{n} trial{'s' * (n > 1)} of {_describe(name)} {'are' if n > 1 else 'is'} too few to estimate its mean "
            f"covariance; at least {needed} are needed. {remedy}"
        )


def _describe(name: Any) -> str:
    """Text for a domain in error messages."""
    return "arrays without groups" if name is None else f"domain {name!r}"


class Alignment(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Whitening of the trials of each domain by the inverse square root of a mean of their covariances.

    Subclasses choose the mean.

    Attributes
    ----------
    whiteners_ : dict of domain to array (n_chans, n_chans)
        Inverse square root of the mean covariance of each domain.
    """

    def __init__(self, *, by: str = "subject", unseen: str = "error", shrinkage: float = 0.0) -> None:
        self.by, self.unseen, self.shrinkage = by, unseen, shrinkage

    @abstractmethod
    def _mean(self, x: Tensor) -> Tensor:
        """Mean covariance (n_chans, n_chans) of the trials of a domain, in float64."""

    def _metric_name(self) -> str:
        """Name of the metric, for the history of trials."""
        return "euclidean"

    def fit(self, X: Any, y: Any = None, groups: Any = None, target: Any = None) -> Self:  # noqa: ARG002
        """Compute the whitening matrix of each domain.

        Parameters
        ----------
        X : array (n, n_chans, n_times), Trials or mne.Epochs
        y : ignored
        groups : array (n,), optional
            Subject, or another name of the domain, of each trial; by default those of Trials and of the metadata of
            epochs, and otherwise one domain.
        target : array, Trials or mne.Epochs, optional
            Further trials without labels, of new domains.  The domain of an array is that of arrays without groups.

        Returns
        -------
        Alignment
        """
        self._check_arguments()
        self.whiteners_: dict[Any, Array] = {}
        for name, x in _by_domain(X, groups, self.by):
            self.whiteners_[name] = self.whitener(x, name)
        if target is not None:
            for name, x in _by_domain(target, None, self.by):
                if name in self.whiteners_:
                    raise ParameterError(
                        f"target: {_describe(name)} is also in X; give groups to tell the domains of X apart."
                    )
                require_enough(x, name)
                self.whiteners_[name] = self.whitener(x, name)
        return self

    def transform(self, X: Any, groups: Any = None) -> Any:
        """Whiten trials.

        Parameters
        ----------
        X : array (n, n_chans, n_times), Trials or mne.Epochs
        groups : array (n,), optional
            As for :meth:`fit`.

        Returns
        -------
        array or Trials
            Trials, in the unit "a.u." and with the step "alignment" in their history, for Trials; otherwise an array.

        Raises
        ------
        ParameterError
            If a domain was not fitted and ``unseen="error"``.
        ShapeError
            If the number of channels differs from that of the fitted trials, or if there are too few trials of an
            unseen domain.
        """
        check_is_fitted(self, "whiteners_")
        self._check_arguments()
        X = gathered(X)
        x, names = read_epochs(X), domain_names(X, groups, self.by)
        aligned = np.empty(x.shape, x.dtype)
        for name in in_order(names):
            rows = names == name
            aligned[rows] = self._whitener_of(x[rows], name) @ x[rows]
        if not isinstance(X, Trials):
            return aligned
        record = {"step": ALIGNMENT, "metric": self._metric_name(), "by": self.by, "shrinkage": self.shrinkage}
        return X.replace(X=aligned, unit="a.u.", steps=(*X.steps, record))

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None, target: Any = None) -> Any:
        """Fit the alignment to trials, and whiten them."""
        further = {} if target is None else {"target": target}
        return self.fit(X, y, groups, **further).transform(X, groups)

    def _check_arguments(self) -> None:
        """Raise ParameterError for arguments that are out of range."""
        check_one_of("by", self.by, DOMAINS)
        check_one_of("unseen", self.unseen, ("error", "fit"))
        if not 0 <= self.shrinkage < 1:
            raise ParameterError(f"shrinkage={self.shrinkage} must be in [0, 1).")

    def _whitener_of(self, x: Array, name: Any) -> Array:
        """Whitening matrix of a domain, which is fitted to its trials ``x`` if it is not known and may be."""
        if name in self.whiteners_:
            whitener = self.whiteners_[name]
        elif self.unseen == "fit":
            require_enough(x, name)
            whitener = self.whitener(x, name)
        else:
            fitted = ", ".join(map(str, self.whiteners_))
            raise ParameterError(
                f"groups: {name!r} was not fitted; fit the alignment to trials of this domain, which need no labels, "
                f"or set unseen='fit'.  Fitted: {fitted}."
            )
        n_chans = len(next(iter(self.whiteners_.values()), whitener))
        if x.shape[1] != n_chans:
            raise ShapeError(f"'X' has {x.shape[1]} channels, but the alignment was fitted to {n_chans}.")
        return whitener

    def whitener(self, x: Array, name: Any = None) -> Array:
        """Inverse square root (n_chans, n_chans) of the mean covariance of the trials ``x`` of the domain ``name``."""
        if not np.ptp(x, axis=-1).any():
            raise NotSPDError(f"the trials of {_describe(name)} are flat: their covariance is 0. Leave them out.")
        try:
            mean = self._mean(torch.from_numpy(np.ascontiguousarray(x)))
        except NotSPDError as error:
            raise NotSPDError(
                f"trials of {_describe(name)} have singular covariances ({error}) Set shrinkage, for example to 0.01, "
                "or metric='bures-wasserstein', or use the Euclidean alignment."
            ) from error
        whitener: Array = inverse_root(mean).numpy()
        return whitener

    def _shrunk(self, covariances: Tensor) -> Tensor:
        """Covariances (..., n, n), shrunk towards multiples of the identity with the same trace."""
        size = covariances.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        eye = torch.eye(covariances.shape[-1], dtype=covariances.dtype)
        return (1 - self.shrinkage) * covariances + self.shrinkage * size * eye


def _by_domain(X: Any, groups: Any, by: str) -> list[tuple[Any, Array]]:
    """Names and trials of each domain, in order of first occurrence."""
    X = gathered(X)
    x, names = read_epochs(X), domain_names(X, groups, by)
    return [(name, x[names == name]) for name in in_order(names)]


class EuclideanAlignment(Alignment):
    r"""Whiten the channels of each subject, so that the mean covariance of its trials is the identity [1]_.

    .. math:: X_i ↦ G^{-1/2} X_i, \quad G = \frac{1}{n} \sum_i C_i

    for the covariances :math:`C_i` of the trials of a subject or session.  Recordings of different subjects, or of
    different sessions, become comparable.  No labels are used.

    Eigenvalues of G below 1e-6 of the largest one, as after an average reference, are raised to this value.  The
    aligned trials then have the rank of the trials.

    Parameters
    ----------
    by : "subject" or "session"
        Domain whose trials are aligned together: a subject, or a session of a subject.  For Trials, and for epochs with
        these columns in their metadata.  Domains of arrays are given as ``groups``.
    unseen : "error" or "fit"
        What :meth:`transform` does with trials of domains that were not fitted.  "fit" fits the alignment to the trials
        that are given, and does not keep it.  This is transductive: the result for a trial depends on the other trials
        of its domain that are transformed with it, of which at least 5 are needed.
    shrinkage : float in [0, 1)
        Shrinkage of the covariances towards a multiple of the identity.

    Attributes
    ----------
    whiteners_ : dict of domain to array (n_chans, n_chans)
        Inverse square root of the mean covariance of each domain; the domain of arrays without groups is None.

    See Also
    --------
    RiemannianAlignment : The same with a Fréchet mean.

    References
    ----------
    .. [1] H. He, D. Wu, "Transfer learning for brain-computer interfaces: a Euclidean space data alignment approach",
       IEEE Transactions on Biomedical Engineering 67, 2020.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, subject = rng.standard_normal((6, 2, 500)), np.repeat([1, 2], 3)
    >>> X[subject == 2] *= 10  # another amplitude
    >>> aligned = EuclideanAlignment().fit_transform(X, groups=subject)
    >>> [aligned[subject == number].std().round(2).item() for number in (1, 2)]
    [1.0, 1.0]
    """

    def _mean(self, x: Tensor) -> Tensor:
        """Arithmetic mean of the covariances; it can be shrunk after averaging, because shrinkage is linear."""
        mean = mean_covariance(x)
        return self._shrunk(mean) if self.shrinkage else mean


class RiemannianAlignment(Alignment):
    r"""Whiten the channels of each subject, so that the Fréchet mean of its covariances is the identity [1]_.

    .. math:: X_i ↦ G^{-1/2} X_i, \quad G = \arg\min_G \sum_i d^2(C_i, G)

    for the covariances :math:`C_i` of the trials of a subject or session and the distance d of a metric.  Under the
    affine-invariant metric, the mean of the aligned covariances is exactly the identity, since
    :math:`G(A C_i A^⊤) = A\, G(C_i)\, A^⊤`; for other metrics this holds if the matrices commute.  Trials with large
    artefacts have less influence than on the arithmetic mean of :class:`EuclideanAlignment`.

    If all trials lack the same directions, as after an average reference, the mean is computed in the other directions.
    Trials with singular covariances within these, as with fewer samples than channels, need ``shrinkage``, or
    ``metric="bures-wasserstein"``, which accepts them.

    Parameters
    ----------
    metric : "affine-invariant", "bures-wasserstein" or "log-euclidean"
        Metric of the mean.
    by, unseen, shrinkage
        As in :class:`EuclideanAlignment`.

    Attributes
    ----------
    whiteners_ : dict of domain to array (n_chans, n_chans)
        Inverse square root of the mean covariance of each domain; the domain of arrays without groups is None.

    References
    ----------
    .. [1] P. Zanini, M. Congedo, C. Jutten, S. Said, Y. Berthoumieu, "Transfer learning: a Riemannian geometry
       framework with applications to brain-computer interfaces", IEEE Transactions on Biomedical Engineering 65(5),
       2018.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, subject = rng.standard_normal((6, 2, 500)), np.repeat([1, 2], 3)
    >>> X[5] *= 100  # an artefact
    >>> aligned = RiemannianAlignment().fit_transform(X, groups=subject)
    >>> bool(aligned[4].std() > 3 * EuclideanAlignment().fit_transform(X, groups=subject)[4].std())
    True
    """

    def __init__(
        self,
        metric: str = "affine-invariant",
        *,
        by: str = "subject",
        unseen: str = "error",
        shrinkage: float = 0.0,
    ) -> None:
        super().__init__(by=by, unseen=unseen, shrinkage=shrinkage)
        self.metric = metric

    def _metric_name(self) -> str:
        return self.metric

    def _check_arguments(self) -> None:
        check_one_of("metric", self.metric, METRICS)
        super()._check_arguments()

    def _mean(self, x: Tensor) -> Tensor:
        """Fréchet mean of the covariances in the directions that the trials have in common."""
        covariances = self._shrunk(_covariances(x))
        basis = _range(covariances.mean(0))
        return congruence(basis, FIXED[self.metric].mean(congruence(basis.mT, covariances)))


def _covariances(x: Tensor) -> Tensor:
    """Covariances (n, n_chans, n_chans) of epochs (n, n_chans, n_times), in float64."""
    centred = (x - x.mean(-1, keepdim=True)).double()
    return centred @ centred.mT / x.shape[2]


def _range(covariance: Tensor) -> Tensor:
    """Orthonormal basis (n, r) of the eigenvectors with eigenvalues above :data:`FLOOR` of the largest one."""
    variances, components = torch.linalg.eigh(covariance)
    basis: Tensor = components[:, variances > FLOOR * variances[-1]]
    return basis


ALIGNMENTS: dict[str, type[Alignment]] = {"euclidean": EuclideanAlignment, "riemannian": RiemannianAlignment}

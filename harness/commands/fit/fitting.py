"""Least squares: numbers for keys of a profile such that a model gives figures, and how well they are known.

Minimised is the sum of squares of ln(predicted / figure) / NOISE over figures and of coordinate / WIDTH over keys (see
`keys.py`): a ridge, or a normal prior around the start. It keeps a key that no figure depends on where it was. The
keys' covariance is C = (J'J / s^2 + 1 / WIDTH^2)^-1 (Laplace's approximation; Bishop, Pattern Recognition and Machine
Learning, sections 3.3 and 4.4), with J the derivatives of the predictions' logarithms. s^2 is the residuals' mean
square over F - tr(J C J') / s^2, what the keys leave of the figures, and over `SUPPOSED` more that are NOISE^2 each (a
scaled inverse chi-square prior), so that few figures that are met exactly do not prove that the model is exact.
Letters: F figures, K keys.

Predictions are drawn with the same seeds each time, so they change evenly with a key, as far as events keep their
order; J is from steps that are large beside what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rlbench.harness.commands.fit.keys import Key

NOISE = 0.05
"""Relative error of a figure and of the model, as far as the fit is asked to follow."""
WIDTH = 1.0
"""Of the prior, in coordinates: a number is within a factor of 2.7 of the start in two of three cases."""
STEP = 0.1
"""Of derivatives, in coordinates."""
SUPPOSED = 4.0
"""Residuals that are supposed beside those of the figures."""
DETERMINED = 0.7
"""A key is determined where its 95 % interval reaches less far than this, in coordinates: a factor of 2."""
MOST_ROUNDS, MOST_STEPS = 8, 20
"""Rounds that begin with derivatives anew, and steps of each."""
SETTLED = 0.01
"""A round that brings the sum of squares down by no more than this part is the last."""

Floats = npt.NDArray[np.float64]
Predict = Callable[[Mapping[str, float]], Sequence[float]]
"""The predictions for numbers of the keys, [F]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedKey:
    """What a fit says of a key."""

    name: str
    number: float
    low: float
    high: float
    """95 % interval, from `low` to `high`."""
    is_determined: bool
    """False: the figures say little about it, and it is about where it was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """A fit."""

    keys: tuple[FittedKey, ...]
    predicted: Floats
    """[F], also of figures that it had no part of."""
    low: Floats
    high: Floats
    """[F], 95 % interval of what would be measured: of the keys' uncertainty and of the residuals' spread."""
    spread: float
    """Standard deviation of the residuals, relative."""
    num_figures: int
    """How many figures had a part in it."""
    has_converged: bool
    """Whether further rounds would change little."""

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of the keys."""
        return {key.name: key.number for key in self.keys}


def fit(keys: Sequence[Key], figures: Sequence[float | None], predict: Predict) -> Fitted:
    """Fits keys to figures.

    Args:
        keys: [K]; where they begin is also where the prior is.
        figures: [F]; None for what is to be predicted, and has no part in the fit.
        predict: the model, for numbers of the keys.

    Raises:
        ValueError: no figure has a part in the fit.
    """
    from scipy import optimize

    is_given = np.array([figure is not None for figure in figures], bool)
    if not is_given.any():
        raise ValueError("fit: there is no figure to fit to")
    wanted = np.log([figure for figure in figures if figure is not None])
    model = _Model(keys, predict)

    def residuals(at: Floats) -> Floats:
        return np.concatenate([(model.logs(at)[is_given] - wanted) / NOISE, at / WIDTH])

    def derivatives(at: Floats) -> Floats:
        return np.concatenate([model.secants(at)[is_given] / NOISE, np.eye(len(keys)) / WIDTH])

    low, high = np.array([key.bounds for key in keys]).T
    at, has_converged = np.clip(np.zeros(len(keys)), low + 1e-6, high - 1e-6), False
    for _ in range(MOST_ROUNDS):
        before = at
        at = optimize.least_squares(
            residuals, at, derivatives, bounds=(low, high), ftol=1e-3, xtol=1e-3, gtol=1e-3, max_nfev=MOST_STEPS
        ).x
        gained = float((residuals(before) ** 2).sum() - (residuals(at) ** 2).sum())
        has_converged = gained <= SETTLED * float((residuals(before) ** 2).sum())
        if has_converged:
            break
        model.forget_secants()
    return _fitted(model, np.asarray(at), is_given, wanted, has_converged=has_converged)


class _Model:
    """Logarithms of the predictions over coordinates, each asked for once."""

    def __init__(self, keys: Sequence[Key], predict: Predict) -> None:
        self.keys = keys
        self._predict = predict
        self._known: dict[bytes, Floats] = {}
        self._secants: tuple[Floats, Floats] | None = None

    def logs(self, at: Floats) -> Floats:
        if at.tobytes() not in self._known:
            numbers = {key.name: key.number(value) for key, value in zip(self.keys, at.tolist(), strict=True)}
            self._known[at.tobytes()] = np.log(self._predict(numbers))
        return self._known[at.tobytes()]

    def secants(self, at: Floats) -> Floats:
        """Derivatives, [F, K], by what the last step has told of those before it (Broyden 1965): one prediction each.

        The first are `slopes`.
        """
        if self._secants is None:
            self._secants = at.copy(), self.slopes(at)
        elif not np.array_equal(self._secants[0], at):
            last, slopes = self._secants
            step = at - last
            missed = self.logs(at) - self.logs(last) - slopes @ step
            self._secants = at.copy(), slopes + np.outer(missed, step) / (step @ step)
        return self._secants[1]

    def forget_secants(self) -> None:
        """So that the next ones are `slopes`."""
        self._secants = None

    def slopes(self, at: Floats) -> Floats:
        """Derivatives, [F, K], by steps to the side where there is room."""
        steps = [STEP if value + STEP <= key.bounds[1] else -STEP for key, value in zip(self.keys, at, strict=True)]
        here, units = self.logs(at), np.eye(len(at))
        return np.stack(
            [(self.logs(at + step * unit) - here) / step for step, unit in zip(steps, units, strict=True)], 1
        )


def _fitted(
    model: _Model, at: Floats, is_given: npt.NDArray[np.bool_], wanted: Floats, *, has_converged: bool
) -> Fitted:
    from scipy import stats

    logs, slopes = model.logs(at), model.slopes(at)
    of_figures, misses = slopes[is_given], logs[is_given] - wanted
    prior = np.eye(len(at)) / WIDTH**2
    spread, freedom = NOISE, SUPPOSED
    for _ in range(20):  # the spread says how many keys the figures could spend, and they say the spread
        covariance = np.linalg.inv(of_figures.T @ of_figures / spread**2 + prior)
        spent = float(np.trace(of_figures @ covariance @ of_figures.T)) / spread**2
        freedom = SUPPOSED + len(wanted) - spent
        spread = float(np.sqrt((misses @ misses + SUPPOSED * NOISE**2) / freedom))
    far = float(stats.t.ppf(0.975, freedom))
    wide = far * np.sqrt(np.einsum("fk,kl,fl->f", slopes, covariance, slopes) + spread**2)
    deviations = np.sqrt(np.diag(covariance))
    return Fitted(
        keys=tuple(
            FittedKey(
                name=key.name,
                number=key.number(value),
                low=key.number(max(key.bounds[0], value - far * deviation)),
                high=key.number(min(key.bounds[1], value + far * deviation)),
                is_determined=far * deviation < DETERMINED,
            )
            for key, value, deviation in zip(model.keys, at.tolist(), deviations.tolist(), strict=True)
        ),
        predicted=np.exp(logs),
        low=np.exp(logs - wide),
        high=np.exp(logs + wide),
        spread=spread,
        num_figures=len(wanted),
        has_converged=has_converged,
    )

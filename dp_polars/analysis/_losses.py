"""From a query, and rows that you may look at, to the smallest losses for good enough answers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._accounting.claims import Claim, epsilon_of
from dp_polars._base.calls import called
from dp_polars._base.numbers import Floats, Ints, Number, as_fraction, given, owners, show, slices, starts
from dp_polars._bins.candidates import Grid, Ordered, distance_unit
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._frames.query import PrivateQuery
from dp_polars._mechanisms.histograms import Histogram, Runs, Slots
from dp_polars._mechanisms.noise import check_scale
from dp_polars._statistics.averages import Average, Mean
from dp_polars._statistics.categories import Choice, Quantile
from dp_polars._statistics.extremes import FirstAbove
from dp_polars._statistics.measures import Measure, Multiple, Total, ValueCounts, loss_at, noisy, totals_of
from dp_polars._statistics.of_shared_draws import BernsteinMean
from dp_polars._statistics.statistic import Columns, HistogramQuery, ListQuery
from dp_polars.analysis import _simulated
from dp_polars.analysis._laws import NoiseLaw, as_probability
from dp_polars.analysis._simulation import no_law, public_table, request_of

if TYPE_CHECKING:
    # From a claim to each group's probability that its answer is near enough.
    Chances: TypeAlias = Callable[[Claim], Floats]


# Significant digits of a loss: from computed chances, and from fractions of draws.
_DIGITS, _DIGITS_OF_DRAWS = 4, 2
# Noisy means per batch, and how far rounding may move noise from a whole number.
_MEANS = 1 << 20
_ROUNDING = 1e-6


@called
def loss_for(
    query: PrivateQuery,
    rows: pl.DataFrame | pl.LazyFrame,
    *,
    within: Number | Mapping[str, Number] = 0,
    groups: Number = 0.95,
    confidence: Number = 0.95,
    allow_private: bool = False,
) -> pl.DataFrame:
    """Return the smallest loss at which enough groups get good answers on *public* rows. The result is not private.

    Use last year's published rows, or synthetic ones (`synthetic`): they show the loss that each output needs. Nothing
    is released, and no budget is charged.

    Parameters
    ----------
    query
        A query of a private frame, not for keys, with or without private rows of its own (they are not touched). Its
        losses only set the unit of the result. Without losses it is the budget's unit, or epsilon.
    rows
        The public rows, as for `simulate`.
    within
        The largest error of a good answer, 0 or more, in the `error_unit` and the sense of `simulate`. For value counts
        and lists, all counts, or answers, must be that near. For a first above a threshold, only the true one is within
        0. A dict sets it for some outputs by name; it is 0 for the others.
    groups
        The part of the groups that must get a good answer: above 0, at most 1. Groups without a true answer are left
        out: for choices, lists and means, groups in which no row counts. (Counts and sums are 0 there.)
    confidence
        The probability of a good answer in each of them: strictly between 0 and 1.
    allow_private
        As for `simulate`: False refuses the very rows that the query protects.

    Returns
    -------
    DataFrame
        One row per output: `output` (String), `loss` (Float64), `loss_unit` (String: "epsilon" or "rho", that of the
        output's own loss) and `epsilon_of_all` (Float64). `loss` is one person's loss to that output, rounded up to
        four significant digits. It is null if 20 is not enough, or no group has a true answer, and 0 if any loss from
        1e-6 on is enough. `epsilon_of_all` is the same in each row: the guarantee that all outputs need together at
        these losses, as an ε at δ = 10⁻⁶; null if one output has no loss.

    Notes
    -----
    The true answer is about the rows that the limits keep, drawn once for all losses: `simulate` shows how many they
    drop. If they drop any, the result differs a little from call to call. A larger loss never makes a count, a sum or a
    mode worse. It may make a quantile worse in the column's unit, and a mean by a little. So the search goes down from
    20 in steps of a third of a decade, and stops at the first loss that is not enough.

    Chances of choices are exact to float64, those of counts and sums to a few 1e-9, those of means to about 1e-4. For
    lists they are fractions of 200 draws: such a loss has two digits, and is off by some 10 %.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient").agg(patients=dpp.n_people(epsilon=1))
    >>> rows = dpp.analysis.synthetic({"patient": pl.Int64}, people=1000, rows=3000)
    >>> loss_for(query, rows, within={"patients": 20}).rows()
    [('patients', 0.1461, 'epsilon', 0.1461)]
    """
    if not isinstance(query, PrivateQuery):
        msg = (
            f"query must be a PrivateQuery, got {given(query)}.\n\n"
            "Hint: dp_polars.protect(…).group_by(…).agg(…) makes one, of expressions too."
        )
        raise TypeError(msg)
    request = request_of(query).alone
    needed, often = as_fraction("groups", groups), as_probability("confidence", confidence)
    if not 0 < needed <= 1:
        msg = f"groups must be above 0 and at most 1, got {groups!r}."
        raise ValueError(msg)
    reach = _reach(within, [ask.name for ask in request.asks])
    engine = PolarsEngine.of(public_table("loss_for", query, "rows", rows, allow_private=allow_private))
    work = request.bind(engine)
    histograms = engine.prepare_histograms(work)()
    losses: list[float | None] = []
    for output in work.outputs:
        parts = [histograms[n] for n in output.specs]
        chances, digits = _chances(output.query, output.types, parts, reach.get(output.name, Fraction(0)))
        with_truth = np.flatnonzero(_has_truth(output.query, output.types, parts))
        losses.append(_smallest_loss(output.query.claim, chances, with_truth, needed, often, digits))
    return pl.DataFrame(
        {
            "output": [output.name for output in work.outputs],
            "loss": losses,
            "loss_unit": [output.query.claim.loss.unit for output in work.outputs],
            "epsilon_of_all": _epsilon_of_all([output.query.claim for output in work.outputs], losses),
        },
        schema={"output": pl.String, "loss": pl.Float64, "loss_unit": pl.String, "epsilon_of_all": pl.Float64},
    )


def _epsilon_of_all(claims: Sequence[Claim], losses: Sequence[float | None]) -> list[float | None]:
    if None in losses:
        return [None] * len(losses)
    found = [(claim, as_fraction("loss", loss)) for claim, loss in zip(claims, losses, strict=True) if loss]
    at_losses = [claim._with_loss(loss) for claim, loss in found]
    whole = epsilon_of(at_losses) if at_losses else 0
    return [float(show(as_fraction("epsilon", whole), 4, up=True))] * len(losses)


def _reach(within: Number | Mapping[str, Number], names: list[str]) -> dict[str, Fraction]:
    by_name = within if isinstance(within, Mapping) else dict.fromkeys(names, within)
    if unknown := sorted(set(by_name) - set(names)):
        msg = f"within must name outputs of the query, got {unknown} where they are {names}."
        raise ValueError(msg)
    labels = {name: f"within[{name!r}]" if by_name is within else "within" for name in by_name}
    reach = {name: as_fraction(labels[name], value) for name, value in by_name.items()}
    for name, value in reach.items():
        if not value >= 0:
            msg = f"{labels[name]} must be 0 or more, got {by_name[name]!r}."
            raise ValueError(msg)
    return reach


def _smallest_loss(
    claim: Claim, chances: Chances, groups: Ints, share: Fraction, probability: float, digits: int
) -> float | None:
    """Return the smallest loss, with this number of digits, from which on enough groups have this chance."""
    if not len(groups):
        return None

    def is_enough(place: int) -> bool:
        at_loss = claim._with_loss(loss_at(place, digits))  # the rate follows
        return int(np.count_nonzero(chances(at_loss)[groups] >= probability)) >= share * len(groups)

    first = 10 ** (digits - 1)
    # From 20, the largest loss that still protects, down to 1e-6, as good as none, in steps of a third of a decade.
    high, smallest = 10 * first, -54 * first
    if not is_enough(high):
        return None
    while is_enough(low := max(high - 3 * first, smallest)):
        high = low
        if low == smallest:
            return 0.0
    return float(loss_at(low + 1 + bisect_left(range(low + 1, high), True, key=is_enough), digits))


def _has_truth(query: HistogramQuery, types: Columns, parts: Sequence[Histogram]) -> NDArray[np.bool_]:
    rows = parts[-1]
    if isinstance(query, (Multiple, ValueCounts, FirstAbove)):  # 0, or no answer, without rows
        return np.ones(len(rows.sizes), bool)
    if isinstance(query, Average):
        return query.rows_of([totals_of(part) for part in parts], *types) > 0
    return np.asarray((query.scored(rows, *types) if isinstance(query, Choice) else rows).totals > 0)


def _chances(query: HistogramQuery, types: Columns, parts: list[Histogram], within: Fraction) -> tuple[Chances, int]:
    if isinstance(query, Choice):
        return _of_choice(query, types, parts[0], within), _DIGITS
    if isinstance(query, FirstAbove):
        of_groups = _simulated.law_of_first_above(
            query, types, _simulated.Histograms(parts[0], parts[0]), _widened(within)
        )
        return lambda claim: of_groups(claim)[_simulated.NEAR].to_numpy(), _DIGITS
    law: Callable[..., Floats | float]
    if isinstance(query, ListQuery):
        law = partial(_simulated.share_within, types=types, histogram=parts[0], within=_widened(within))
    elif isinstance(query, (ValueCounts, Multiple)):
        step = 1 if isinstance(query, ValueCounts) else query.answer_step(*types)
        law = partial(_of_noise, types=types, most=math.floor(within / step))
    elif isinstance(query, Total):
        of_totals: Callable[..., Floats] = _of_draws
        if isinstance(query, Mean):
            of_totals = _of_pair if isinstance(query, BernsteinMean) else _of_mean
        law = partial(of_totals, types=types, totals=[totals_of(part) for part in parts], within=_widened(within))
    else:
        raise no_law(query)

    def chances(claim: Claim) -> Floats:
        try:
            asked: Any = query.with_loss(claim.loss.value)
            for noise in asked.noise(*types) if isinstance(asked, Measure) else ():
                check_scale(noise)
        except ValueError:  # at so small a loss, the noise does not fit into 64 bits
            return np.zeros(len(parts[0].sizes))
        return np.broadcast_to(law(asked), len(parts[0].sizes))

    return chances, _DIGITS if isinstance(query, (ValueCounts, Multiple, Mean)) else _DIGITS_OF_DRAWS


def _widened(within: Fraction) -> float:
    """Return a distance in floats that rounding of the answers does not exceed."""
    return float(within) * (1 + 1e-9)


def _of_noise(statistic: Multiple | ValueCounts, types: Columns, most: int) -> float:
    (noise,) = statistic.noise(*types)
    below, upto = NoiseLaw(noise, *statistic.bits_of_parts(*types)).up_to(np.array([-most - 1.0, most]))
    return float(upto - below) ** statistic.answer_width(*types)


def _of_choice(query: Choice, types: Columns, histogram: Histogram, within: Fraction) -> Chances:
    scored, draw, step = query.scored(histogram, *types), query.draw(*types), query.step(*types)
    slots = draw.score.slots(Runs.of_counts(scored.codes, scored.weights, scored.sizes), draw.size)
    if isinstance(query, Quantile):
        good = _shares_within(query.points, slots, within)
    else:  # all of a slot, or nothing
        most = min(math.floor(within * draw.score.unit / step), 2**62)
        good = (slots.gaps.astype(np.int64) <= most).astype(np.float64)
    blocks = slots.gaps.astype(np.float64), slots.multiplicities, slots.sizes

    def chances(claim: Claim) -> Floats:
        law = _simulated.law_of_blocks(*blocks, claim._rate_in(step), claim.mechanism)
        return np.asarray(np.add.reduceat(law * good, starts(slots.sizes)))

    return chances


def _shares_within(candidates: Ordered, slots: Slots, within: Fraction) -> Floats:
    owner = owners(slots.sizes)
    right = np.flatnonzero(slots.gaps == 0)
    true = slots.first[right[np.searchsorted(owner[right], np.arange(len(slots.sizes)))]].astype(np.int64)
    if isinstance(candidates, Grid):
        steps = min(math.floor(within * distance_unit(candidates.dtype)[1] / candidates.step), candidates.size)
        low, high = true - steps, true + steps + 1
    else:
        places, reach = candidates.places(), _widened(within)
        low = np.searchsorted(places, places[true] - reach)
        high = np.searchsorted(places, places[true] + reach, side="right")
    last = np.minimum(slots.first + slots.multiplicities, high[owner])
    return np.asarray(np.maximum(last - np.maximum(slots.first, low[owner]), 0) / slots.multiplicities)


def _of_mean(statistic: Mean, types: Columns, totals: list[Ints], within: float) -> Floats:
    """Return the probability of a near mean: given the noisy count, it is linear in the sum's noise, then clipped."""
    of_sum, of_count = statistic.noise(*types)
    bits, bits_of_count = statistic.bits_of_parts(*types)
    noisy, (off, shares) = NoiseLaw(of_sum), _simulated.cells_of_noise(of_count, bits_of_count)
    low, high = statistic.ends
    of_units = [np.ldexp(total, -bit) for total, bit in zip(totals, (bits, bits_of_count), strict=True)]
    true, half_step = statistic.of_totals(of_units, *types), math.ldexp(float(statistic.units(*types).step) / 2, -bits)
    chances = np.empty(len(true))
    for first, last in slices(np.ones(len(true), np.int64), len(true), max(1, _MEANS // len(off))):
        distance, number, mean = (values[first:last, None] for values in (totals[0], of_units[1], true))

        def noise_at(mean: Any, number: Any = number, distance: Any = distance) -> Floats:  # noqa: ANN401
            return np.asarray((mean - (low + high) / 2) * np.maximum(number + off, 1) / half_step - distance)

        # A clipped mean is as near as its end. The slack keeps whole numbers despite rounding.
        above = np.where(mean + within >= high, np.inf, np.floor(noise_at(mean + within) + _ROUNDING))
        below = np.where(mean - within <= low, -np.inf, np.ceil(noise_at(mean - within) - _ROUNDING) - 1)
        chances[first:last] = (noisy.up_to(above) - noisy.up_to(below)) @ shares
    return chances


def _of_pair(statistic: BernsteinMean, types: Columns, totals: list[Ints], within: float) -> Floats:
    """Return the probability of a near mean: for each noisy second sum, the mean grows with the first one's noise."""
    (claim, _), (bits, _) = statistic.noise(*types), statistic.bits_of_parts(*types)
    noisy, (off, shares) = NoiseLaw(claim), _simulated.cells_of_noise(claim, bits)
    low, high = statistic.ends
    middle, half, width = (low + high) / 2, (high - low) / 2, int(statistic.changes(*types)[0])
    first, second = (np.ldexp(total, -bits) for total in totals)
    true = statistic.of_totals([first, second], *types)
    chances = np.empty(len(true))
    for begin, end in slices(np.ones(len(true), np.int64), len(true), max(1, _MEANS // len(off))):
        one, other, mean = (values[begin:end, None] for values in (first, second, true))

        def noise_at(mean: Any, one: Any = one, other: Any = other) -> Floats:  # noqa: ANN401
            with np.errstate(divide="ignore", invalid="ignore"):
                of_both = (other + off) * 2 * half / (half + middle - mean)  # both sums, if they are a row or more
            difference = (mean - middle) / half
            both = np.where(of_both >= width, of_both * (1 + difference) / 2, other + off + difference * width)
            return np.asarray(np.ldexp(both - one, bits))

        above = np.where(mean + within >= high, np.inf, np.floor(noise_at(mean + within) + _ROUNDING))
        below = np.where(mean - within <= low, -np.inf, np.ceil(noise_at(mean - within) - _ROUNDING) - 1)
        chances[begin:end] = (noisy.up_to(above) - noisy.up_to(below)) @ shares
    return chances


def _of_draws(statistic: Total, types: Columns, totals: list[Ints], within: float) -> Floats:
    drawn = [
        noisy(np.tile(total, _simulated.DRAWS), claim)
        for total, claim in zip(totals, statistic.noise(*types), strict=True)
    ]
    bits = statistic.bits_of_parts(*types)
    true, answers = (
        statistic.named([np.ldexp(one, -bit) for one, bit in zip(numbers, bits, strict=True)], *types).to_numpy()
        for numbers in (totals, drawn)
    )
    return np.asarray((abs(answers.reshape(_simulated.DRAWS, len(true)) - true) <= within).mean(axis=0))

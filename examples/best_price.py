"""The best single price for a good, from private bids.

    python examples/best_price.py

Every buyer has told the most that they would pay. At a price p, all whose bid is at least p buy, so the revenue is
p × their number. The prices are public candidates; the bids are private.

Sensitivity: one buyer more adds p to the revenue of every price p up to their bid and nothing to the others.

One sensitivity for all prices is the highest price. All scores move the same way, so they are *monotonic* under adding
or removing a buyer, and so under replacing one: the prices at which a bid buys are nested, so a higher bid only adds
buyers, and a lower one only removes them. The range is therefore the highest price itself, not twice that.

But the revenue of a price moves by no more than *that* price: a public sensitivity of its own for each row. Then cheap
prices need not carry the noise of dear ones, and a list of prices may go far beyond what anybody pays.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from dp_polars import analysis

EPSILON = 0.2


def main() -> None:
    rng = np.random.default_rng(7)
    everyone = rng.gamma(4.0, 18.0, 20_000)
    print(f"{len(everyone):,} buyers, epsilon = {EPSILON}; revenue lost on average (exact), in % of the best one\n")
    print("highest price   best price   one sensitivity   own sensitivities")
    for highest in (200, 500, 1_000, 4_000):
        revenues = revenues_at(np.arange(1, highest + 1), everyone)
        one = pl.col("revenue").dp.argmax(epsilon=EPSILON, sensitivity=highest, monotonic=True)
        own_sensitivities = pl.col("revenue").dp.argmax(epsilon=EPSILON, sensitivity=pl.col("price"))
        best = revenues.sort("revenue", descending=True).row(0, named=True)
        lost = [
            analysis.simulate(expr, revenues)["expected_error"].item() / best["revenue"]
            for expr in (one, own_sensitivities)
        ]
        print(f"{highest:>13,}   {best['price']:>10}   {lost[0]:>15.2%}   {lost[1]:>17.2%}")
    most = analysis.scores.worst_expected_error(highest, epsilon=EPSILON, sensitivity=highest, monotonic=True)
    print(f"\nwhatever the bids are, one sensitivity of {highest:,} loses at most {most:,.0f} on average")
    # One private answer: a release.
    print(f"\na private best price of {highest:,}: {revenues.select(pl.col('price').get(own_sensitivities)).item()}")
    print(own_sensitivities)


def revenues_at(prices: np.ndarray, bids: np.ndarray) -> pl.DataFrame:
    buyers = len(bids) - np.searchsorted(np.sort(bids), prices)
    return pl.DataFrame({"price": prices, "revenue": prices * buyers})


if __name__ == "__main__":
    main()

"""The best single price for a good, from private bids.

    python examples/best_price.py

Every buyer has told the most that they would pay. At a price p, all whose bid is at least p buy, so the revenue is
p × their number. The prices are public candidates; the bids are private.

Sensitivity: one buyer more adds p to the revenue of every price up to their bid and nothing to the others: at most the
highest price. All scores move the same way, so the scores are *monotonic* under adding or removing a buyer. They are so
under replacing one, too: the prices at which a bid buys are nested (a higher bid buys at all the prices of a lower one,
and more), so exchanging a bid for a higher one only adds buyers, and for a lower one only removes them. The range is
therefore the highest price itself, not twice that.
"""

from __future__ import annotations

import numpy as np
import polars as pl

import dp_polars  # noqa: F401  registers .dp
from dp_polars import analysis

HIGHEST = 200


def main() -> None:
    rng = np.random.default_rng(7)
    bids = rng.gamma(4.0, 18.0, 20_000).clip(0, HIGHEST)
    prices = np.arange(1, HIGHEST + 1)
    buyers = len(bids) - np.searchsorted(np.sort(bids), prices)
    revenues = pl.DataFrame({"price": prices, "revenue": prices * buyers})
    best = pl.col("revenue").dp.argmax(epsilon=1.0, sensitivity=HIGHEST, monotonic=True)
    print(best)
    private = revenues.select(pl.col("price").get(best)).item()
    true = revenues.sort("revenue", descending=True)
    chosen = true.filter(pl.col("price") == private)["revenue"].item()
    print(f"\nprivate best price: {private}; true one, only to compare: {true['price'][0]}")
    print(f"the private price loses {1 - chosen / true['revenue'][0]:.2%} of the best revenue")
    worst = analysis.worst_expected_error(HIGHEST, epsilon=1.0, sensitivity=HIGHEST, monotonic=True)
    print(
        f"whatever the bids are, it loses at most {worst:,.0f} on average; the best revenue is {true['revenue'][0]:,}"
    )


if __name__ == "__main__":
    main()

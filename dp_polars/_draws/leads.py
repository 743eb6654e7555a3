"""Modes with their lead: by how many rows or people the answer was ahead of the next candidate."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base.arrays import starts
from dp_polars._base.words import WordSource, uniform_below
from dp_polars._draws.drawing import blocks_of_gaps, gaps_of_rows, is_dense, of_group_slices, of_row_slices
from dp_polars._draws.histograms import Histogram
from dp_polars._mechanisms.leading import Leaders, race_with_lead
from dp_polars._mechanisms.racing import Blocks, ExactBlocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._base.arrays import Ints
    from dp_polars._codes.encoding import Codes
    from dp_polars._draws.drawing import Draw
    from dp_polars._draws.scores import Runs

# One code per group, and the lead in rows: −1 where there is no other candidate.
Led: TypeAlias = "tuple[Ints, Ints]"


def type_with_lead(answer: pl.DataType, lead: pl.DataType) -> pl.Struct:
    """Return the type of answers that come with their lead."""
    return pl.Struct({"answer": answer, "lead": lead})


def with_lead(answers: pl.Series, leads: pl.Series, is_alone: NDArray[np.bool_]) -> pl.Series:
    """Return answers with their leads; null where there was no other candidate."""
    shown = leads.zip_with(pl.Series(~is_alone), pl.Series([None], dtype=leads.dtype))
    return pl.DataFrame({"answer": answers, "lead": shown}).to_struct()


def lead_from_rows(draw: Draw, codes: Codes, lengths: Ints) -> Led:
    """Return one code and its lead per group, from the codes of its rows; `draw.size` is ignored."""
    if not is_dense(draw, codes, lengths):
        return lead_groups(draw, Histogram.of_rows(codes, None, lengths, draw.size))

    def of_slice(codes: Codes, lengths: Ints) -> Led:
        blocks = blocks_of_gaps(gaps_of_rows(draw, codes, lengths))
        leaders = _race(draw, blocks, draw.words())
        return leaders.blocks - blocks.starts, leaders.leads

    return _joined(of_row_slices(of_slice, draw, codes, lengths))


def lead_groups(draw: Draw, histogram: Histogram) -> Led:
    """Return one code and its lead per group; that of a group without rows is uniform."""
    return _joined(of_group_slices(partial(_lead_from_runs, draw), histogram))


def _lead_from_runs(draw: Draw, runs: Runs) -> Led:
    """Return one code and its lead per group, from all scores of some groups."""
    slots = draw.score.slots(runs, draw.size)
    begins = starts(slots.sizes)

    def exact(group: int) -> ExactBlocks:
        group_slots = slots.part(slice(begins[group], begins[group] + slots.sizes[group]))
        return group_slots.gaps.tolist().__getitem__, group_slots.multiplicities.tolist()

    words = draw.words()
    leaders = _race(draw, Blocks(slots.gaps, begins, exact, slots.multiplicities), words)
    first, count = (column[leaders.blocks].astype(np.int64) for column in (slots.first, slots.multiplicities))
    offset = uniform_below(count, words)
    # Where the winner is one of those without rows, they have no first code.
    return np.where(first < 0, runs.nth_unoccupied(offset), first + offset), leaders.leads


def _race(draw: Draw, blocks: Blocks, words: WordSource) -> Leaders:
    """Return the winners with their leads in whole rows."""
    return race_with_lead(blocks, draw.rate, Fraction(draw.score.unit), draw.law, words)


def _joined(parts: Sequence[Led]) -> Led:
    codes, leads = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part_codes, part_leads in parts:
        codes.append(part_codes)
        leads.append(part_leads)
    return np.concatenate(codes), np.concatenate(leads)

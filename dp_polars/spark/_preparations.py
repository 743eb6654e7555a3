"""What made a Spark DataFrame, as a text: its steps, constants, tables and files."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Functions in other languages, rows in memory, chance and clocks, as Spark's classes and messages name them.
_NO_TEXT = re.compile(
    r'"class": ?"[^"]*(?:UDF|UDAF|RDD|LocalRelation|Python|Pandas|MapElements|MapPartitions|TypedFilter|Aggregator'
    r'|Rand\w*|Uuid|Shuffle|Current\w+|Now|LocalTimestamp)"'
    r'|"(?:commonInlineUserDefined\w+|pythonUdf|javaUdf|\w*[lL]ocalRelation)": ?\{'
    r'|"functionName": ?"(?:rand\w*|uuid|shuffle|now|current_\w+|localtimestamp)"'
)
_NUMBER = re.compile(r'(?<=[^\\]"planId": ")\d+')


def text_of_frame(frame: DataFrame) -> str | None:
    """Return a digest of what made a frame, and of the files that it reads; None where it has no text.

    It reads no row. Numbers that Spark gives to columns and plans count by their order alone.
    """
    if hasattr(frame, "_jdf"):
        plan = frame._jdf.queryExecution().analyzed()
        # Neither text has everything: the short one leaves columns out, the tree a character after LIKE.
        tree, shown = plan.toJSON(), re.sub(r"#\d+L?", "#", plan.toString())
        text = json.dumps([_renamed(json.loads(tree), {}), shown])
    else:
        from google.protobuf.json_format import MessageToJson

        numbers: dict[str, int] = {}
        tree = MessageToJson(frame._plan.to_proto(frame.sparkSession.client))
        text = _NUMBER.sub(lambda found: str(numbers.setdefault(found[0], len(numbers))), tree)
    if _NO_TEXT.search(tree):
        return None
    return hashlib.sha256(json.dumps([text, sorted(frame.inputFiles())]).encode()).hexdigest()


def _renamed(tree: Any, ids: dict[tuple[int, str], int]) -> Any:  # noqa: ANN401  # what JSON holds
    """Return a tree whose columns are numbered in the order in which they stand in it."""
    if isinstance(tree, dict):
        if {"id", "jvmId"} <= tree.keys():
            return ids.setdefault((tree["id"], tree["jvmId"]), len(ids))
        return {key: _renamed(value, ids) for key, value in tree.items()}
    return [_renamed(value, ids) for value in tree] if isinstance(tree, list) else tree

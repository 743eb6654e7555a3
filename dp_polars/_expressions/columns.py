"""`col`: Polars' own, with a type that says that its columns have `.dp`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polars._typing import PolarsDataType, PythonDataType

    from dp_polars._expressions.namespace import PrivateNamespace

    class Column(pl.Expr):
        """What type checkers take a column of `col` for: an expression with `.dp`. No object has this class."""

        @property
        def dp(self) -> PrivateNamespace: ...


class Col(Protocol):
    """What type checkers take `col` for; its calls and attributes are those of `polars.col`."""

    def __call__(
        self,
        name: str | PolarsDataType | PythonDataType | Iterable[str] | Iterable[PolarsDataType | PythonDataType],
        *more_names: str | PolarsDataType | PythonDataType,
    ) -> Column:
        """Return one or several columns, by name or type."""

    def __getattr__(self, name: str) -> Column:
        """Return the column of this name."""


col: Col = pl.col  # type: ignore[assignment]  # `.dp` is registered, which its type does not say

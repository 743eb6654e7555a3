"""Arrays of integers that are any integers: the code's own scores, computed with them, become formulas of z3."""

import numpy as np
import z3


def larger(a, b):
    return z3.If(a >= b, a, b) if z3.is_expr(a) or z3.is_expr(b) else max(a, b)


def smaller(a, b):
    return z3.If(a <= b, a, b) if z3.is_expr(a) or z3.is_expr(b) else min(a, b)


_UFUNCS = {
    np.maximum: np.frompyfunc(larger, 2, 1),
    np.minimum: np.frompyfunc(smaller, 2, 1),
    np.equal: np.frompyfunc(lambda a, b: a == b, 2, 1),
    np.floor_divide: np.frompyfunc(lambda a, b: a / b, 2, 1),  # of z3's integers, rounded down where b is above 0
}


class Terms(np.ndarray):
    """An array of terms; NumPy's functions on it give arrays of terms, also where they would compare."""

    @classmethod
    def of(cls, rows):
        rows = list(rows)
        array = np.empty(len(rows), object)
        array[:] = rows
        return array.reshape(1, -1).view(cls)

    def __array_ufunc__(self, ufunc, method, *inputs, out=(None,), **kwargs):
        plain = [np.asarray(x).view(np.ndarray) if isinstance(x, Terms) else x for x in inputs]
        wanted = {key: kwargs[key] for key in ("axis", "keepdims") if key in kwargs}
        found = np.asarray(getattr(_UFUNCS.get(ufunc, ufunc), method)(*plain, **wanted), object).view(Terms)
        if out[0] is None:
            return found
        np.ndarray.__setitem__(out[0], ..., found)
        return out[0]

    def __setitem__(self, key, value):
        if not isinstance(key, Terms):  # a slice
            super().__setitem__(key, value)
            return
        for row, condition in enumerate(key):
            for column in range(self.shape[1]):
                super().__setitem__((row, column), z3.If(condition, value, self[row, column]))


def integers(name, count):
    """Return that many integers of which nothing is known."""
    return [z3.Int(f"{name}{i}") for i in range(count)]

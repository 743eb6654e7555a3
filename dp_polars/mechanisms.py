"""The mechanisms by themselves, on scores and numbers in NumPy: without rows, people or a budget."""

from dp_polars._mechanisms.noise import discrete_gaussian, discrete_laplace
from dp_polars._mechanisms.selection import exponential_mechanism, permute_and_flip

__all__ = ["discrete_gaussian", "discrete_laplace", "exponential_mechanism", "permute_and_flip"]


def __dir__() -> list[str]:
    return __all__

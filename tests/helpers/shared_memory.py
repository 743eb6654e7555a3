"""Arrow arrays in memory that can be written into."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def texts_in_memory_of_ones_own(texts: list[str]) -> tuple[pa.StringArray, NDArray[np.uint8]]:
    """Texts, and the array that holds their bytes."""
    written = np.frombuffer("".join(texts).encode(), np.uint8).copy()
    ends = np.cumsum([0, *(len(text.encode()) for text in texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(written)), written

"""Names for arrays."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
SignedInts: TypeAlias = "NDArray[np.signedinteger]"  # of 32 bits where they suffice: half the time

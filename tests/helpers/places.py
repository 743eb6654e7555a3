"""Where things stand that tests read from outside the package."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DPBENCH = ROOT.parent / "shared" / "data" / "dpbench"
needs_dpbench = pytest.mark.skipif(not DPBENCH.exists(), reason="the DPBench data is not part of the repository")

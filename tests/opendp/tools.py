"""What the tests with OpenDP share."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

# OpenDP reads frames in the format of one version of Polars; everything else of it works with any.
needs_frames = pytest.mark.skipif(pl.__version__ != "1.36.1", reason="OpenDP 0.16 reads frames of polars 1.36.1 only")


def run(script: str) -> subprocess.CompletedProcess[str]:
    """A script in a Python of its own, in which warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def succeed(script: str) -> str:
    """Run a script, which must end well, and return what it printed."""
    result = run(script)
    assert result.returncode == 0, result.stderr
    return result.stdout

"""Where the checkout is. Tests read no file outside it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

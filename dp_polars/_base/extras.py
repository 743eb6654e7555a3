"""Optional packages."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtraError(AttributeError):
    """A part of this package is requested by its name (`dp_polars.spark`), and its extra is not installed.

    The message has the command that installs it. `import dp_polars.spark` raises a ModuleNotFoundError instead, as any
    import of a missing module.
    """


def require(module: str, *, extra: str) -> Any:  # noqa: ANN401
    """Import a module of an optional extra, or raise with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        package = module.partition(".")[0]
        msg = f"the package {package} must be installed for this.\n\nHint: pip install 'dp-polars[{extra}]'"
        raise ModuleNotFoundError(msg, name=error.name) from error

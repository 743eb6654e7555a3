"""The command line: `python -m dp_polars plan FILE` opens the planner in the browser."""

from __future__ import annotations

import argparse
import atexit
import runpy
import secrets
import shutil
import socket
import sys
import tempfile
import time
import webbrowser
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

_NEEDED = ("marimo", "altair", "vl_convert")


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return its exit code.

    Parameters
    ----------
    arguments
        Those of the command line; None: its own.
    """
    parser = argparse.ArgumentParser(prog="python -m dp_polars", description="Private answers from Polars frames.")
    commands = parser.add_subparsers(dest="command", title="commands")
    plan = commands.add_parser(
        "plan",
        help="plan a private release in the browser",
        description="Plan a private release in the browser. Only the names and types of the columns of FILE are read.",
    )
    plan.add_argument(
        "file", nargs="?", metavar="FILE", help="a Parquet file; without it, a synthetic table is planned"
    )
    plan.add_argument("--port", type=int, help="the port at 127.0.0.1; without it, a free one")
    plan.add_argument("--no-browser", action="store_true", help="only print the address, and open no browser")
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    return _plan(given.file, given.port, opens=not given.no_browser)


def _plan(file: str | None, port: int | None, *, opens: bool) -> int:
    if missing := [package for package in _NEEDED if find_spec(package) is None]:
        print(
            f"plan needs {', '.join(missing)}, which can't be imported.\n\nHint: pip install 'dp-polars[plan]'",
            file=sys.stderr,
        )
        return 1
    from dp_polars._publish.schema import schema_of

    if file is not None:
        try:
            schema_of(file)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
    if port is not None and (why := _taken(port)):
        print(f"--port must be one that is free, got {port}: {why}.", file=sys.stderr)
        return 1
    notebook = Path(__file__).parent / "_publish" / "notebook.py"
    command = ["marimo", "run", str(notebook), "--host", "127.0.0.1"]
    # The token is in the address. Without it, any page in the browser, or user of the machine, could ask what it shows.
    # The one of `--token` is Python's hash of the notebook: PYTHONHASHSEED would give it away.
    token, port = secrets.token_hex(16), _free_port() if port is None else port
    command += ["--token", "--token-password", token, "--port", str(port)]
    # Marimo would start a browser with the address on its command line, which all users of the machine can read.
    command += ["--headless"]
    if opens:
        Thread(target=_open_when_it_listens, args=(port, token), daemon=True).start()
    command += [] if file is None else ["--", "--file", f"path:{file}"]  # marimo would read a number, or an option
    sys.argv = command  # in this process, so that the server ends with it
    runpy.run_module("marimo", run_name="__main__", alter_sys=True)
    return 0


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def page_to(port: int, token: str) -> Path:
    """Return a page that leads the browser to the planner, in a file that only its user can read."""
    folder = tempfile.mkdtemp(prefix="dp_polars-")  # a folder of this user alone
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    page = Path(folder) / "planner.html"
    page.touch(mode=0o600)
    address = f"http://127.0.0.1:{port}/?access_token={token}"
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={address}"><a href="{address}">Plan</a>'
    )
    return page


def _open_when_it_listens(port: int, token: str) -> None:
    """Open the browser once the server answers; give up after a minute."""
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            webbrowser.open(page_to(port, token).as_uri())
            return
        time.sleep(0.1)


def _taken(port: int) -> str | None:
    """Return why a port can't be listened at; None if it can."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            return getattr(error, "strerror", None) or str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())

"""A real Postgres server for the tests of this folder: a cluster of its own in a temporary folder, on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.sql.tools import REQUIRED

_WAYS = ["/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt"]


def program(name):
    """Where a program of Postgres' server is; Debian has them in no path. None: nowhere."""
    found = shutil.which(name)
    if found is not None:
        return found
    places = sorted(path for way in _WAYS for path in Path(way).glob(f"*/bin/{name}"))
    return str(places[-1]) if places else None


def missing(message):
    pytest.fail(message) if REQUIRED else pytest.skip(message)


class Server:
    """A running cluster.

    It belongs to the user `postgres` where root runs the tests: Postgres' server refuses to run as root.
    """

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.own = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.own:
            shutil.chown(folder, "postgres")
        self.run("initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "owner", "-E", "UTF8", "--locale=C.UTF-8")
        options = f"-p {self.port} -k {folder} -c listen_addresses= -c fsync=off -c jit=off"
        self.run("pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log", "-o", options, "start")

    def run(self, name, *arguments):
        command = [*self.own, program(name), *arguments]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")

    def stop(self):
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-m", "immediate", "stop")

    def connect(self, user, database="clinic"):
        """A connection of Ibis."""
        import ibis

        return ibis.postgres.connect(host=str(self.folder), port=self.port, user=user, database=database)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="session")
def server():
    if program("initdb") is None:
        missing("Postgres is missing: apt-get install postgresql")
    pytest.importorskip("psycopg") if not REQUIRED else __import__("psycopg")
    # Not in pytest's folder, which nobody else may enter; and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        running = Server(Path(name))
        try:
            with running.connect("owner", "postgres") as con:
                con.raw_sql("CREATE DATABASE clinic")
            with running.connect("owner") as con:
                # A user who may read, and nothing else: no tables, not even temporary ones.
                con.raw_sql("CREATE ROLE reader LOGIN")
                con.raw_sql("REVOKE ALL ON DATABASE clinic FROM PUBLIC")
                con.raw_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
                con.raw_sql("GRANT CONNECT ON DATABASE clinic TO reader")
                con.raw_sql("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader")
                con.raw_sql("ALTER ROLE reader SET default_transaction_read_only = on")
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="session")
def owner(server):
    """A connection that makes tables."""
    con = server.connect("owner")
    yield con
    con.disconnect()


@pytest.fixture(scope="session")
def reader(server, owner):
    """A connection that may only read."""
    con = server.connect("reader")
    yield con
    con.disconnect()

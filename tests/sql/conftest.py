"""A real Postgres server for the tests of this folder: a cluster of its own in a temporary folder, on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.needs import lack, need
from tests.sql.tools import NUMBERS, TYPES, to_duckdb, to_postgres

_WAYS = ["/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt"]


def program(name):
    """Where a program of Postgres' server is; Debian has them in no path. None: nowhere."""
    found = shutil.which(name)
    if found is not None:
        return found
    places = sorted(path for way in _WAYS for path in Path(way).glob(f"*/bin/{name}"))
    return str(places[-1]) if places else None


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

    def sql(self, database, *statements):
        import psycopg

        with psycopg.connect(
            host=str(self.folder), port=self.port, user="owner", dbname=database, autocommit=True
        ) as con:
            for statement in statements:
                con.execute(statement)

    def connect(self, user):
        """A connection of Ibis."""
        import ibis

        return ibis.postgres.connect(host=str(self.folder), port=self.port, user=user, database="clinic")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="session")
def server():
    if program("initdb") is None:
        lack("POSTGRES", "Postgres is missing: apt-get install postgresql")
    need("psycopg")
    # Not in pytest's folder, which nobody else may enter; and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        running = Server(Path(name))
        try:
            running.sql("postgres", "CREATE DATABASE clinic")
            # A user who may read, and nothing else: no tables, not even temporary ones.
            running.sql(
                "clinic",
                "CREATE ROLE reader LOGIN",
                "ALTER ROLE reader SET default_transaction_read_only = on",
                "REVOKE ALL ON DATABASE clinic FROM PUBLIC",
                "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
                "GRANT CONNECT ON DATABASE clinic TO reader",
                "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader",
            )
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


@pytest.fixture(params=["duckdb", "postgres"])
def engine(request):
    """The name of an engine, and what makes a table there of a frame."""
    import ibis

    if request.param == "duckdb":
        con = ibis.duckdb.connect()
        yield Made("duckdb", con, con, lambda frame: to_duckdb(con, frame))
        con.disconnect()
    else:
        owner, reader = request.getfixturevalue("owner"), request.getfixturevalue("reader")
        yield Made("postgres", owner, reader, lambda frame: to_postgres(owner, reader, frame))


@dataclass(frozen=True)
class Made:
    name: str
    owner: Any  # who makes tables
    reader: Any  # who may only read
    table: Any

    def need(self, *names):
        """Skip a test about types of the registry that the engine has no columns of."""
        if missing := set(names) - set(TYPES[self.name]):
            pytest.skip(f"no columns of {missing} in {self.name}")

    def tables(self):
        """Everything in all schemas that has columns."""
        sql = "SELECT table_schema, table_name FROM information_schema.tables"
        return sorted(self.reader.raw_sql(sql).fetchall())

    def rename(self, old, new):
        """Give a table another name."""
        self.owner.raw_sql(f'ALTER TABLE "{old}" RENAME TO "{new}"')

    def view(self, sql):
        """A view of an owner, seen by a reader."""
        name = f"view{next(NUMBERS)}"
        self.owner.raw_sql(f"CREATE VIEW {name} AS {sql}")
        return self.reader.table(name)

"""What the tests with Spark share."""

import os
import socket
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.registry import COLUMNS

PARTITIONS = 6
# Code that runs for minutes is compiled once and quickly, on a machine of few cores.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Whether Spark's sessions speak gRPC to a server of Spark Connect, or Py4J.
CONNECT = os.environ.get("SPARK_API_MODE") == "connect"
# Types of the registry that Spark has, and what it calls them.
DDL = {"Boolean": "boolean", "Int8": "tinyint", "Int16": "smallint", "Int32": "int", "Int64": "bigint"}
DDL |= {"Float32": "float", "Float64": "double", "String": "string", "Date": "date", "Datetime in UTC": "timestamp"}
DDL |= {"Datetime": "timestamp_ntz", "Duration": "interval day to second", "Decimal": "decimal(10,2)"}
DDL |= {"wide Decimal": "decimal(38,6)"}
# What Spark Connect may do in another way than a classic session.
on_both = pytest.mark.connect
on_classic = pytest.mark.skipif(CONNECT, reason="asks the JVM of a classic session")
MARKS = [
    pytest.mark.slow,
    # One worker of pytest-xdist runs all of this, so that Spark starts once.
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


def ddl(dtype):
    """What Spark calls a type of the registry."""
    if isinstance(dtype, pl.Decimal):
        return f"decimal({dtype.precision},{dtype.scale})"
    named = {kind.dtype: name for name, kind in COLUMNS.items()}
    return DDL[named[dtype]]


def with_class(query, kind):
    """The same query, asked by objects of another class."""
    asks = tuple(
        replace(ask, query=kind(**{name: getattr(ask.query, name) for name in ("alpha", "candidates", "terms")}))
        for ask in query._asks
    )
    return dpp.PrivateQuery(replace(query._request, asks=asks), None, query.budget)


def started(folder, master="local-cluster[2,1,1024]", python=sys.executable, **more):
    """A session, classic or of Spark Connect: a process has sessions of one kind. Its server has a port of its own."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = str(python)
    builder = SparkSession.builder.master(master)
    settings = {"spark.checkpoint.dir": folder / "checkpoints", "spark.driver.memory": "1g"}
    settings |= {"spark.driver.extraJavaOptions": QUICK, "spark.executor.memory": "1g"}
    settings |= {"spark.executor.extraJavaOptions": QUICK, "spark.local.dir": folder / "local"}
    settings |= {"spark.sql.warehouse.dir": folder / "warehouse", "spark.ui.enabled": "false"}
    settings |= {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF", "spark.task.maxFailures": 3}
    settings |= {"spark.shuffle.io.maxRetries": 1, "spark.shuffle.io.retryWait": "500ms"}
    settings |= {"spark.sql.session.timeZone": "America/New_York", "spark.sql.shuffle.partitions": PARTITIONS}
    # Adaptive execution would put frames as small as these into one task.
    settings |= {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
    if CONNECT:
        from pyspark.sql.connect.client import DefaultChannelBuilder

        port = free_port()
        DefaultChannelBuilder.default_port = staticmethod(lambda: port)
        settings["spark.connect.grpc.binding.port"] = port
    for name, value in (settings | more).items():
        builder = builder.config(name, str(value))
    with warnings.catch_warnings():  # of what the server has as it starts, and no session of Spark Connect may set
        warnings.simplefilter("ignore")
        return builder.getOrCreate()


def free_port():
    """A port of this machine that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def two_hosts(folder):
    """A standalone cluster whose two workers have different addresses of this machine: its address."""
    import pyspark

    port = free_port()
    url = f"spark://127.0.0.1:{port}"

    def run(role, host, *more):
        command = [Path(pyspark.__file__).parent / "bin" / "spark-class", f"org.apache.spark.deploy.{role}"]
        command += ["--host", host, "--webui-port", "0", *more]
        log = (folder / f"{role} {host}").open("w")
        return subprocess.Popen([*map(str, command)], stdout=log, stderr=log)

    running = [run("master.Master", "127.0.0.1", "--port", str(port))]
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.2)
        for host in ("127.0.0.1", "127.0.0.2"):
            work = ["--cores", "1", "--memory", "1g", "--work-dir", folder / host]
            running.append(run("worker.Worker", host, *work, url))
        yield url
    finally:
        for process in running:
            process.kill()
            process.wait()


def need_spark():
    """Skip the module where there is no Spark, unless it is required."""
    need("pyspark")


def to_spark(spark, frame, schema=None):
    """A Spark DataFrame of the same rows."""
    return spark.createDataFrame(frame.to_arrow(), schema)


def partitions_of(frame):
    """In how many partitions rows of a frame lie."""
    from pyspark.sql import functions as sf

    return frame.select(sf.spark_partition_id()).distinct().count()


def to_polars(frame):
    """A Polars frame of the same rows."""
    return pl.DataFrame(pl.from_arrow(frame.toArrow()))

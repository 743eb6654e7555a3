"""Only the footer of a file is read, and only names and types of the footer."""

import builtins
import io
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_polars import __main__ as command
from dp_polars._publish import schema as planner_schema
from dp_polars._publish.schema import schema_of
from tests.helpers.needs import IS_OLD
from tests.helpers.refusals import refused

NO_FOOTER = "FILE must be a Parquet file whose footer can be read"
TYPES = {"patient": pl.Int64, "ward": pl.Enum(["A", "B"]), "kind": pl.Categorical(), "tags": pl.List(pl.Int8)}


def written(path, height=5000):
    rows = {"patient": range(height), "ward": ["A"] * height, "kind": ["secret"] * height, "tags": [[1]] * height}
    pl.DataFrame(rows).cast(TYPES).write_parquet(path, row_group_size=max(1, height // 3))
    return path


def footer_at(data):
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@pytest.mark.parametrize("fill", [0x00, 0xAA, 0xFF])
def test_rows_that_cannot_be_read_or_are_missing_do_not_matter(tmp_path, fill):
    path = written(tmp_path / "visits.parquet")
    data = path.read_bytes()
    begin = footer_at(data)
    assert begin > 1000
    path.write_bytes(bytes([fill]) * begin + data[begin:])
    refused((pl.exceptions.PolarsError, OSError), None, pl.read_parquet, path)
    assert schema_of(str(path)) == pl.Schema(TYPES)
    path.write_bytes(b"PAR1" + data[begin:])
    assert schema_of(str(path)) == pl.Schema(TYPES)


def test_no_byte_before_the_footer_is_read_and_polars_is_given_the_footer_alone(tmp_path, monkeypatch):
    path, given = written(tmp_path / "visits.parquet"), []
    data, read = path.read_bytes(), []
    begin, schema = footer_at(data), pl.read_parquet_schema
    monkeypatch.setattr(pl, "read_parquet_schema", lambda source: given.append(source.getvalue()) or schema(source))

    class Watched:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def seek(self, *place):
            return self.file.seek(*place)

        def read(self, size):
            read.append((self.file.tell(), size))
            return self.file.read(size)

    opened = builtins.open
    monkeypatch.setattr(Path, "open", lambda self, mode: Watched(opened(self, mode)))
    assert schema_of(str(path)) == pl.Schema(TYPES)
    assert read
    assert all(place >= begin for place, _ in read)
    assert sum(size for _, size in read) == len(data) - begin  # each once
    assert given == [b"PAR1" + data[begin:]]


def test_number_of_rows_statistics_and_metadata_change_nothing_and_are_not_shown(tmp_path):
    first, second = (schema_of(str(written(tmp_path / f"{height}.parquet", height))) for height in (3, 9000))
    assert first == second
    table = pa.table({"p": [1, 2], "kind": pa.array(["secret", "x"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "arrow.parquet")
    assert schema_of(str(tmp_path / "arrow.parquet")) == pl.Schema({"p": pl.Int64, "kind": pl.Categorical()})
    assert "secret" not in str(schema_of(str(tmp_path / "arrow.parquet")))
    table = pa.table({"p": [1, 2]}, metadata={"note": "secret"})
    plain = table.replace_schema_metadata(None)
    index = {"index_columns": [{"kind": "range", "start": 0, "stop": 987654, "step": 1}]}
    pandas = table.replace_schema_metadata({"pandas": json.dumps(index)})
    found = []
    for number, one in enumerate((plain, table, pandas)):
        pq.write_table(one, tmp_path / f"{number}.parquet")
        found.append(schema_of(str(tmp_path / f"{number}.parquet")))
    assert found == [pl.Schema({"p": pl.Int64})] * 3


def test_other_files_are_refused(tmp_path):
    path, short = tmp_path / "visits.parquet", [40, 61, 2**31, 2**32 - 1]  # junk, and a footer longer than its file
    footers = [b"PAR1" + b"x" * 60 + length.to_bytes(4, "little") + b"PAR1" for length in short]
    footers += [b"x" * 60 + length.to_bytes(4, "little") + b"PAR1" for length in short[1:]]
    for data in (b"", b"PAR1", b"a,b\n1,2\n", b"PARE" * 40, *footers):
        path.write_bytes(data)
        refused(ValueError, NO_FOOTER, schema_of, str(path))


def test_a_damaged_footer_is_refused_or_gives_names_and_types(tmp_path):
    path = written(tmp_path / "visits.parquet", 10)
    data, chance = path.read_bytes(), random.Random(5)
    begin, refused = footer_at(data), 0
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(3):
            broken[chance.randrange(begin, len(data) - 8)] = chance.randrange(256)
        path.write_bytes(broken)
        try:
            schema_of(str(path))
        except ValueError as error:
            refused += 1
            assert "FILE must be a Parquet file" in str(error)  # noqa: PT017
    assert refused > 50


def test_a_file_that_is_not_there(tmp_path):
    for name, why, is_several in (
        ("missing.parquet", "No such file", False),
        ("*.parquet", "No such file", True),
        ("", "Is a directory", True),
        ("~nobody-of-this-name/visits.parquet", "Could not determine home directory", False),
        ("visits\0.parquet", "embedded null byte", False),
    ):
        words, path = rf"FILE must be a file that can be opened, got .*{why}", str(tmp_path / name)
        error = refused(ValueError, words, schema_of, name if name[:1] == "~" else path)
        assert ("Hint: of several files with the same columns, give any one." in str(error)) == is_several


class _Noted(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int64(), "tests.noted")

    def __arrow_ext_serialize__(self):
        return b"secret"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


@pytest.mark.filterwarnings("ignore:.*xtension")
def test_what_a_writer_noted_with_a_type_is_not_shown(tmp_path):
    noted = pa.ExtensionArray.from_storage(_Noted(), pa.array([1, 2]))
    inside = pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(noted, 1)], ["x"])
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 2]), noted)
    pq.write_table(pa.table({"p": noted, "q": inside, "r": listed}), tmp_path / "noted.parquet")
    assert ("secret" in str(pl.read_parquet_schema(tmp_path / "noted.parquet"))) != IS_OLD
    schema = schema_of(str(tmp_path / "noted.parquet"))
    assert "secret" not in str(schema)
    plain = pl.Int64 if IS_OLD else pl.Extension("tests.noted", pl.Int64)
    assert schema == pl.Schema({"p": plain, "q": pl.Struct({"x": pl.Array(plain, 1)}), "r": pl.List(plain)})


def test_a_footer_that_the_reader_panics_at_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path / "visits.parquet")

    def panic(_):
        msg = "secret"
        raise pl.exceptions.PanicException(msg)

    monkeypatch.setattr(pl, "read_parquet_schema", panic)
    assert "secret" not in str(refused(ValueError, NO_FOOTER, schema_of, str(path)))


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path / "visits.parquet")

    class Shrinking(io.FileIO):
        def read(self, size=-1):
            data = super().read(size)
            os.truncate(path, 100)
            return data

    monkeypatch.setattr(Path, "open", lambda self, mode: Shrinking(self, mode))
    refused(ValueError, NO_FOOTER, schema_of, str(path))


def test_a_port_that_is_taken_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda package: package)
    monkeypatch.setattr(command.runpy, "run_module", lambda *_, **__: pytest.fail("it was started"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for wrong in (port, 70_000):
            assert command.main(["plan", "--port", f"{wrong}"]) == 1
            assert f"--port must be one that is free, got {wrong}: " in capsys.readouterr().err


def test_the_command_says_what_is_wrong_and_help_needs_no_extra(tmp_path, capsys, monkeypatch):
    assert command.main([]) == 0
    assert "plan" in capsys.readouterr().out
    monkeypatch.setattr(command, "find_spec", lambda package: None if package == "marimo" else package)
    assert command.main(["plan"]) == 1
    assert "pip install 'dp-polars[plan]'" in capsys.readouterr().err
    monkeypatch.setattr(command, "find_spec", lambda package: package)
    assert command.main(["plan", str(tmp_path / "no.parquet")]) == 1
    assert "FILE must be a file that can be opened" in capsys.readouterr().err
    refused(SystemExit, None, command.main, ["plan", "--port", "x"])
    program = (
        "import sys; sys.modules['marimo'] = sys.modules['altair'] = None; import dp_polars.__main__ as m; m.main([])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "python -m dp_polars" in done.stdout


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.parquet")
    with pytest.raises(ValueError, match=r"FILE must be a file that can be opened, got .*: it is no regular file"):
        planner_schema.schema_of(str(tmp_path / "pipe.parquet"))


def test_the_address_goes_to_the_browser_by_a_file_of_its_user_alone(monkeypatch):
    opened = []
    monkeypatch.setattr(command.webbrowser, "open", opened.append)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command._open_when_it_listens(port, "secret-token")
    (address,) = opened
    assert address.startswith("file://")
    assert "secret" not in address
    page = Path(address.removeprefix("file://"))
    assert f"http://127.0.0.1:{port}/?access_token=secret-token" in page.read_text()
    assert page.stat().st_mode & 0o077 == page.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("more", [[], ["--no-browser", "--port", "4000"]])
def test_the_command_runs_the_notebook_for_this_machine_alone(tmp_path, monkeypatch, more):
    path, ran = str(written(tmp_path / "visits.parquet")), []
    monkeypatch.setattr(command, "find_spec", lambda package: package)
    monkeypatch.setattr(command.runpy, "run_module", lambda name, **_: ran.append((name, list(sys.argv))))
    monkeypatch.setattr(sys, "argv", ["dp_polars"])
    told = []
    monkeypatch.setattr(command, "_open_when_it_listens", lambda port, token: told.append((port, token)))
    assert command.main(["plan", path, *more]) == 0
    name, arguments = ran[0]
    assert name == "marimo"
    assert arguments[:2] == ["marimo", "run"]
    assert Path(arguments[2]).samefile(Path(planner_schema.__file__).parent / "notebook.py")
    assert arguments[3:5] == ["--host", "127.0.0.1"]
    # No other page in the browser, or user of the machine, knows the token.
    place = arguments.index("--token-password") + 1
    assert len(set(arguments[place])) > 5
    assert len(arguments[place]) == 32
    assert command.main(["plan", path, *more]) == 0
    assert ran[1][1][place] != arguments[place]
    assert arguments[-3:] == ["--", "--file", f"path:{path}"]
    # Marimo opens no browser: the address would be on a command line, which every user of the machine sees.
    assert "--headless" in arguments
    assert len(told) == (0 if more else 2)
    assert more or (arguments[arguments.index("--port") + 1], arguments[place]) == (str(told[0][0]), told[0][1])
    assert "4000" in arguments or not more


def test_a_footer_that_is_too_long_is_not_read_and_of_a_file_of_another_kind_only_the_end(tmp_path, monkeypatch):
    path = written(tmp_path / "visits.parquet")
    monkeypatch.setattr(planner_schema, "_LARGEST", 100)
    refused(ValueError, NO_FOOTER, schema_of, str(path))
    with (tmp_path / "visits.csv").open("wb+") as file:
        file.write(b"patient,ward\n" + b"1,A\n" * 50 + (40).to_bytes(4, "little") + b"WARD")
        assert planner_schema._footer(file) == b""

"""The command line as a process: signals, pipes, and how soon it answers."""

from __future__ import annotations

import signal
import subprocess
import sys

import reef
from cli.running import SOURCE, Shell


def test_version_and_help_do_not_load_the_database() -> None:
    code = (
        "import sys\n"
        "from reef.cli.main import cli\n"
        "for argument in ('--version', '--help'):\n"
        "    try: cli.main([argument])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'pyarrow', 'numpy', 'obstore', 'pandas', 'rich', 'msgspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": SOURCE}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.startswith(f"reef {reef.__version__}\n".encode())


def test_every_public_name_is_found_when_asked_for() -> None:
    code = (
        "import reef\n"
        "for name in reef.__all__: assert getattr(reef, name) is not None\n"
        "assert set(reef.__all__) <= set(dir(reef))\n"
        "try: reef.nonsense\n"
        "except AttributeError as error: assert 'nonsense' in str(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": SOURCE}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_a_whole_session(shell: Shell) -> None:
    rows = shell.file("rows.csv", "id,n\na,1\nb,2\n")
    for arguments, expected in (
        (["create", "m"], b"created m\n"),
        (["write", "m", rows], b"2 rows (2 upserted)"),
        (["scan", "m", "--columns", "n"], b'{"n":1}\n{"n":2}\n'),
        (["count", "m", "--json"], b'{"count":2}\n'),
    ):
        process = shell.spawn(*arguments)
        out, err = process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert out.startswith(expected)
    process = shell.spawn("get", "m", "zz")
    assert process.communicate() == (b"", b"reef: there is no document 'zz' in m\n")
    assert process.returncode == 1


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    with reef.connect(shell.bucket) as database, database.namespace("m") as namespace:
        namespace.write(upserts={"id": list(range(50_000)), "n": list(range(50_000))})
    for kind in ("jsonl", "csv"):
        process = shell.spawn("scan", "m", "--format", kind)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 141


def test_an_interrupt_is_quiet(movies: Shell) -> None:
    process = movies.spawn("changes", "movies", "--follow", "--every", "30s")
    assert process.stdout is not None
    # The first line says that it is at work.
    assert process.stdout.readline().startswith(b"2\t")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, b"")


def test_an_interrupted_write_keeps_what_was_committed(shell: Shell) -> None:
    shell.ok("create", "m")
    process = shell.spawn("write", "m", "--batch", "1", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"id":"a"}\n')
    process.stdin.flush()
    # A row is not kept waiting until more of them have come.
    with reef.connect(shell.bucket) as database, database.namespace("m", "r") as reader:
        while reader.get("a") is None:
            reader.refresh()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")
    assert shell.ok("verify", "m", "--deep").code == 0
    assert shell.ok("get", "m", "a").lines == [{"id": "a"}]

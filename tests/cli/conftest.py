"""A shell for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty bucket that is there."""
    (tmp_path / "bucket").mkdir()
    return Shell(tmp_path)


def make_movies(shell: Shell) -> Shell:
    """Three movies, two of them folded into a segment."""
    shell.ok("create", "movies", "--attribute", "year=int64")
    rows = '{"id":"a","title":"Alien","year":1979}\n{"id":"b","title":"Brazil","year":1985}\n'
    shell.ok("write", "movies", stdin=rows)
    shell.ok("index", "movies")
    shell.ok("write", "movies", stdin='{"id":"c","title":null}\n')
    return shell


@pytest.fixture
def movies(shell: Shell) -> Shell:
    """A bucket with three movies."""
    return make_movies(shell)


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The same, shared by tests that change nothing."""
    folder = tmp_path_factory.mktemp("steady")
    (folder / "bucket").mkdir()
    return make_movies(Shell(folder))

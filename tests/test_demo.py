"""The guided tour, with few films: it tells the truth, and stops when it would not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import reef

# The tour is run once, for all tests of this file.
pytestmark = pytest.mark.xdist_group("demo")

ROOT = Path(__file__).resolve().parent.parent
FILMS = 3_000


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tour") / "bucket"


@pytest.fixture(scope="module")
def told(bucket: Path) -> str:
    path = os.pathsep.join([str(ROOT), str(Path(reef.__file__).parent.parent)])
    words = ["--films", str(FILMS), "--bucket", str(bucket), "--facts", f"{bucket}.json"]
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "demo", *words],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"},
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    return ran.stdout


@pytest.fixture(scope="module")
def facts(bucket: Path, told: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{bucket}.json").read_text())
    return found


def test_the_numbers_of_the_story(facts: dict[str, Any]) -> None:
    assert facts["written"] == facts["count"] == FILMS
    assert facts["patched"] == FILMS // 50
    assert facts["race_winners"] == 1
    assert facts["retry_writes"] == 0
    assert facts["runs_folded"] > facts["runs_compacted"] == 1
    assert facts["cold_requests"] == 2
    assert 0 < facts["filtered_rows"] < FILMS // 100
    assert facts["filtered_share"] < 50
    assert facts["deleted"] == facts["restored"] > 0
    assert facts["changes"] == {"delete": facts["deleted"], "upsert": facts["deleted"]}
    assert facts["acknowledged"] >= 75
    assert (facts["lost"], facts["torn"]) == (0, 0)
    assert facts["fenced"]
    assert facts["orphans"] == 2
    assert facts["corruption"]
    assert facts["sound"]
    assert facts["ratings"] == FILMS // 2 - 10
    assert facts["streamed"] > facts["ratings"]


def test_what_is_shown_is_plain_text_and_every_claim_is_marked(
    told: str, facts: dict[str, Any]
) -> None:
    assert "\x1b" not in told
    assert "✗" not in told
    # One mark is in the introduction, where it is explained.
    assert told.count("✓") == facts["claims"] + 1
    assert max(map(len, told.splitlines())) <= 100


def test_a_bucket_of_ones_own_is_kept(bucket: Path, told: str) -> None:
    assert str(bucket) in told
    with reef.connect(bucket) as database:
        assert database.namespaces() == ["films", "ratings", "reviews"]
        with database.namespace("films", "r") as films:
            assert films.count() == FILMS
            film = films.get("film-000007")
            assert film is not None
            assert film["title"] == "The Patient Retry"


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], int]:
    monkeypatch.syspath_prepend(str(ROOT))
    found: Callable[[Sequence[str]], int] = import_module("demo.__main__").main
    return found


def test_a_bucket_that_is_in_use_is_refused(
    bucket: Path,
    told: str,
    main: Callable[[Sequence[str]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--bucket", str(bucket)]) == 2
    assert "has a namespace 'films' already" in capsys.readouterr().err


def test_memory_is_refused(
    main: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--bucket", "memory://"])
    assert ended.value.code == 2
    assert "in memory" in capsys.readouterr().err


def test_a_claim_that_does_not_hold_ends_the_tour(
    main: Callable[[Sequence[str]], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = import_module("demo.tour").Tour
    monkeypatch.setattr(wrong, "is_intact", lambda tour, reading: False)
    assert main(["--films", str(FILMS)]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("✗") == 1
    assert "did not hold: every attribute of every document" in shown.err

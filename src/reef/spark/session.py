"""A Spark session that suits Reef."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from reef.errors import InvalidInput, SparkUnavailable
from reef.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GIGABYTE = 1 << 30
_LOCAL = re.compile(r"local(?:\[\s*(\*|\d+)\s*(?:,.*)?\])?$")


def session(master: str | None = None, *, app_name: str = "reef", **conf: object) -> SparkSession:
    """The Spark session of this process; one that suits Reef is started if there is none.

    A session that is there already is returned as it is, whoever made it; `InvalidInput` if
    `master` names another than it runs on. A new one runs on `master`, `local[*]` unless told.
    `conf` takes settings of Spark's by name, `**{"spark.driver.memory": "8g"}`; they win over
    those of `spark-defaults.conf`, and both over Reef's own.

    Raises `SparkUnavailable` where PySpark or a Java for it is missing.
    """
    if find_spec("pyspark") is None:
        raise SparkUnavailable("Spark is not installed; install reefdb[spark]")
    from pyspark.sql import SparkSession

    running = running_session()
    if running is not None:
        _check_master(running, master)
        return running
    asked = {name: _text(value) for name, value in conf.items()}
    if "spark.remote" in asked or "SPARK_REMOTE" in os.environ:
        return _started(SparkSession.builder.appName(app_name), {**_query_settings(), **asked})
    home = _spark_home()
    preset = {**_site_settings(home), **asked}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started Java, and has been told where to run.
        settings = _query_settings()
        if master is not None:
            settings["spark.master"] = master
        settings = {name: value for name, value in settings.items() if name not in preset}
        return _started(SparkSession.builder.appName(app_name), {**settings, **asked})
    master = master or preset.get("spark.master") or "local[*]"
    environment = _environment(home, master)
    settings = {**_settings(master, environment["PYTHONPATH"]), **preset, "spark.master": master}
    options = "spark.driver.extraJavaOptions"
    settings[options] = " ".join([*_java_options(environment), preset.get(options, "")]).strip()
    with _set(environment):
        return _started(SparkSession.builder.appName(app_name), settings)


def running_session() -> SparkSession | None:
    """The session of this process, if there is one."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        try:
            return SparkSession.active()
        except PySparkRuntimeError:
            return None
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _check_master(running: SparkSession, master: str | None) -> None:
    from pyspark.sql.utils import is_remote

    if master is None or is_remote():
        return
    there = running.sparkContext.master
    if there != master:
        raise InvalidInput(
            f"a Spark session on {there} is running in this process; stop it before starting one "
            f"on {master}"
        )


def _started(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _settings(master: str, python_path: str) -> dict[str, str]:
    settings = {
        **_query_settings(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": _text(sys.stderr is not None and sys.stderr.isatty()),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.python.worker.reuse": "true",
        "spark.executorEnv.PYTHONPATH": python_path,
    }
    cores = _local_cores(master)
    if cores is not None:
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": f"{_driver_megabytes(_memory())}m",
            "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
        }
    return settings


def _query_settings() -> dict[str, str]:
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.compression.codec": "none",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    }


def _java_options(environment: dict[str, str]) -> list[str]:
    """The options that Java starts with. Sets JAVA_HOME to the Java they are for."""
    java = find_java()
    environment["JAVA_HOME"] = str(java.home)
    log = Path(__file__).with_name("log4j2.properties")
    # Spark splits these at spaces, and takes a backslash as an escape.
    return [f'"-Dlog4j2.configurationFile={log.as_uri()}"']


def _environment(home: Path, master: str) -> dict[str, str]:
    """What Spark takes from the environment of the process that starts it."""
    found = {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYTHONPATH": _python_path(os.environ.get("PYTHONPATH", "")),
    }
    if _local_cores(master) is not None:
        found["SPARK_LOCAL_IP"] = "127.0.0.1"
    return found


def _python_path(given: str) -> str:
    """The given path, and the folder of this package if a Python would not find it by itself."""
    paths = [path for path in given.split(os.pathsep) if path]
    root = str(Path(__file__).resolve().parent.parent.parent)
    installed = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    return os.pathsep.join(paths if root in installed or root in paths else [*paths, root])


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def _site_settings(home: Path) -> dict[str, str]:
    """What the owner of this machine has set for Spark."""
    folder = os.environ.get("SPARK_CONF_DIR") or home / "conf"
    try:
        text = Path(folder, "spark-defaults.conf").read_text()
    except OSError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"\s*=\s*|\s+", line, maxsplit=1) for line in lines if line[:1] not in "#!")
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _local_cores(master: str) -> int | None:
    """How many cores a local master runs on; None for a cluster."""
    match = _LOCAL.match(master)
    if match is None:
        return None
    if match[1] == "*":
        return os.cpu_count() or 1
    return int(match[1] or 1)


def _driver_megabytes(memory: int) -> int:
    """A quarter of the machine, at least 1 GiB and at most 4: the Pythons need the rest."""
    return max(_GIGABYTE, min(memory // 4, 4 * _GIGABYTE)) >> 20


def _memory() -> int:
    """The bytes of memory that this process may count on."""
    found = [4 * _GIGABYTE]
    with suppress(ValueError, OSError, AttributeError):
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    # A container's limit; the word "max" where there is none.
    with suppress(ValueError, OSError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _set(environment: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

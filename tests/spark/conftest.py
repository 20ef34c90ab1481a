"""One Spark session and one cluster for the tests here, which run in one process each for that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import reef.spark
from support.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN_SESSIONS = ("test_cluster", "test_session", "test_java")
ROOT = Path(__file__).resolve().parent.parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A Java takes seconds to start and a gigabyte to run, so there is one for all of these, but
    for those that start their own: they have a process of the test run to themselves."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            group = "cluster" if item.path.stem in OWN_SESSIONS else "spark"
            item.add_marker(pytest.mark.xdist_group(group))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def python_path() -> Iterator[str]:
    """The environment's PYTHONPATH, by which tasks find Reef and what tests hand them."""
    paths = [str(ROOT / "src"), str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        yield os.environ["PYTHONPATH"]


@pytest.fixture(scope="session")
def spark(python_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session on two cores."""
    folder = tmp_path_factory.mktemp("spark")
    session = reef.spark.session(
        "local[2]",
        **{
            "spark.driver.memory": "1g",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(python_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone cluster of two workers. Its sessions belong to processes that tests start:
    this one has the local session."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running

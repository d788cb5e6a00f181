"""One cluster for all tests that leave it as they found it."""

from collections.abc import Iterator

import pytest

from tests.support.clusters import ClusterProcesses, cluster_of


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path_factory.mktemp("cluster")) as running:
        yield running

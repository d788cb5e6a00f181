"""What holds for every test."""

import subprocess
import sys

import pytest
from hypothesis import settings

# How long an example takes depends on who else uses the machine; it is no test's business.
settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")


def pytest_configure(config: pytest.Config) -> None:
    """Make the code of the gRPC service of a .proto that has changed, once for all workers."""
    sources = config.rootpath / "src/penstock"
    proto = sources / "server/grpc/proto/penstock/v1/penstock.proto"
    code = sources / "v1/penstock_pb2.py"
    if hasattr(config, "workerinput") or not proto.exists():
        return
    if not code.exists() or code.stat().st_mtime < proto.stat().st_mtime:
        subprocess.run([sys.executable, "setup.py", "--quiet", "protos"], cwd=config.rootpath, check=True)

"""What holds for every test."""

import gc
import signal
import subprocess
import sys
import warnings
from collections.abc import Generator
from functools import cache
from types import ModuleType

import pytest
from hypothesis import settings

# How long an example takes depends on who else uses the machine; it is no test's business.
settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")

# Clients that leave sockets open when they get no connection.
FORGETFUL = frozenset(("kafka", "aiokafka"))


def pytest_configure(config: pytest.Config) -> None:
    """Make the code of the gRPC service of a .proto that has changed, once for all workers."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in a background job of a shell: the processes of tests would inherit it, and be deaf to Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sources = config.rootpath / "src/penstock"
    proto = sources / "server/grpc/proto/penstock/v1/penstock.proto"
    code = sources / "v1/penstock_pb2.py"
    if hasattr(config, "workerinput") or not proto.exists():
        return
    if not code.exists() or code.stat().st_mtime < proto.stat().st_mtime:
        subprocess.run([sys.executable, "setup.py", "--quiet", "protos"], cwd=config.rootpath, check=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Undo what a node that runs in a test's own process does to that process."""
    del item
    is_collecting, thresholds, interval = gc.isenabled(), gc.get_threshold(), sys.getswitchinterval()
    frozen = gc.get_freeze_count()
    try:
        return (yield)
    finally:
        if (gc.isenabled(), gc.get_threshold()) != (is_collecting, thresholds):
            gc.set_threshold(*thresholds)
            (gc.enable if is_collecting else gc.disable)()
            if not frozen:
                gc.unfreeze()
        sys.setswitchinterval(interval)


@cache
def uses_forgetful(module: ModuleType) -> bool:
    """Whether a module of tests has something of theirs among its names."""
    origins = (
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        for value in vars(module).values()
    )
    return any(isinstance(name, str) and name.partition(".")[0] in FORGETFUL for name in origins)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let sockets that foreign clients forget go with the test, and not in the middle of another one.

    What they have logged holds them until the test is over. Only what is new is looked through.
    """
    if not (isinstance(item, pytest.Function) and uses_forgetful(item.module)):
        return (yield)
    item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
    gc.freeze()
    try:
        return (yield)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        gc.unfreeze()

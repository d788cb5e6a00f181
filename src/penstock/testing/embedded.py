"""A node on a thread of this process."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

from penstock.config import ConfigError, assemble, not_available
from penstock.config.environment import RawSetting
from penstock.node import NodeAddresses, NodeOptions, options_from, run_node
from penstock.runtime import Address, Callback, NodeIdentity
from penstock.runtime.loop import RuntimeOptions, run_embedded
from penstock.runtime.port import Program
from penstock.testing.nodes import (
    START_SECONDS,
    STOP_SECONDS,
    NodeEndpoints,
    NodeFailed,
    NodeNotReady,
    NodeOnThread,
)
from penstock.testing.unsynced_disk import UnsyncedDisk


def unsynced(options: RuntimeOptions) -> RuntimeOptions:
    """Nothing is synced, so nothing is needed that syncs."""
    return replace(options, sync_helper=False)


def node_options(settings: Mapping[str, str]) -> NodeOptions:
    """The node that these settings describe; neither a file nor the environment adds to them."""
    config = assemble(RawSetting(key, text, "settings") for key, text in settings.items()).config
    if problems := not_available(config):
        raise ConfigError(problems)
    return options_from(config)


def endpoints(addresses: NodeAddresses) -> NodeEndpoints:
    assert addresses.http is not None
    return NodeEndpoints(_shown(next(iter(addresses.kafka.values()))), _shown(addresses.http))


def _shown(address: Address) -> str:
    return f"{address.host}:{address.port}"


class EmbeddedNode:
    """A thread that has the loop of one node."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stop: Callback | None = None
        self._ready: Future[NodeAddresses] = Future()
        self._failure: BaseException | None = None

    def launch(self, settings: Mapping[str, str]) -> None:
        options = node_options(settings)
        self._ready, self._failure, self._stop = Future(), None, None
        # Should nobody stop it, it does not keep the process from ending.
        name = f"penstock-node-{options.node_id}"
        self._thread = threading.Thread(target=self._run, args=(options,), name=name, daemon=True)
        self._thread.start()

    def await_ready(self) -> NodeEndpoints:
        try:
            return endpoints(self._ready.result(START_SECONDS))
        except TimeoutError:
            raise NodeNotReady(f"the node was not ready within {START_SECONDS} s") from None

    def stop(self) -> None:
        self.discard()
        self.await_end()

    def discard(self) -> None:
        if self._stop is not None:
            # The loop is closed if the node has just ended by itself.
            with suppress(RuntimeError):
                self._stop()

    def await_end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(STOP_SECONDS)
        if thread.is_alive():
            raise NodeFailed(f"the node did not stop within {STOP_SECONDS} s")
        # It holds the node, and the node what it has open.
        self._stop = None
        if self._failure is not None:
            raise NodeFailed(f"the node ended: {self._failure}") from self._failure

    def kill(self) -> None:
        raise NodeOnThread("a node on a thread cannot be killed: use broker(in_process=False)")

    def _run(self, options: NodeOptions) -> None:
        failure: BaseException = NodeNotReady("the node was stopped before it was ready")

        def run(program: Program, identity: NodeIdentity, least: RuntimeOptions) -> BaseException | None:
            return run_embedded(program, identity, self._starting, unsynced(least))

        try:
            run_node(options, self._ready.set_result, run, UnsyncedDisk)
        except BaseException as raised:
            failure = raised
            if self._ready.done():
                self._failure = raised
        if not self._ready.done():
            self._ready.set_exception(failure)

    def _starting(self, stop: Callback) -> None:
        self._stop = stop

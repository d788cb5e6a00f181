"""Master keys from a plugin, such as the client of a KMS.

A plugin is an installed distribution with an entry point of the group `penstock.key_services`:

    [project.entry-points."penstock.key_services"]
    example = "example_kms:ExampleKeys"

The entry point is called once with the options of the configuration, a mapping of texts. It returns an
object with two methods, `load()` and `rotate(now_ms)`, which both return a `MasterKeys` of
`penstock.storage.sealing`: every key that may be needed, by name, and which one is current. `rotate` has a
new key made, or just returns what there is if keys are made elsewhere. Both may block, for
`security.encryption.timeout_ms` at most; they are called from threads, one call at a time. What they raise is
shown if it is a `KeyUnavailable`; of anything else only the type is: its text may have a secret.
"""

import threading
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from penstock.storage.sealing import KeyUnavailable, MasterKeys

GROUP = "penstock.key_services"


class PluginKeys:
    """The key service of a plugin, by the name of its entry point."""

    def __init__(self, name: str, options: Mapping[str, str], timeout_ms: int) -> None:
        self._name = name
        self._options = options
        self._timeout_ms = timeout_ms
        self._plugin: Any = None
        self._lock = threading.Lock()

    def load(self) -> MasterKeys:
        return self._ask("load", lambda plugin: plugin.load())

    def rotate(self, now_ms: int) -> MasterKeys:
        return self._ask("rotate", lambda plugin: plugin.rotate(now_ms))

    def _ask(self, verb: str, ask: Callable[[Any], object]) -> MasterKeys:
        if not self._lock.acquire(timeout=self._timeout_ms / 1000):
            raise KeyUnavailable(f"the key service {self._name} still has not answered an earlier call")
        answer: list[object] = []

        def call() -> None:
            try:
                if self._plugin is None:
                    self._plugin = _find(self._name).load()(dict(self._options))
                answer.append(ask(self._plugin))
            except Exception as error:  # whatever a plugin raises: no key
                answer.append(error)
            finally:
                self._lock.release()

        # A thread of its own: nobody can end a call that hangs, but nobody has to wait for it either.
        thread = threading.Thread(target=call, name="penstock-key-service", daemon=True)
        thread.start()
        thread.join(self._timeout_ms / 1000)
        if not answer:
            raise KeyUnavailable(f"the key service {self._name} took longer than {self._timeout_ms} ms")
        return self._checked(verb, answer[0])

    def _checked(self, verb: str, answer: object) -> MasterKeys:
        if isinstance(answer, KeyUnavailable):
            raise KeyUnavailable(f"the key service {self._name}: {answer}") from None
        if isinstance(answer, Exception):
            kind = type(answer).__name__
            raise KeyUnavailable(f"the key service {self._name} failed in {verb} with {kind}") from None
        if not isinstance(answer, MasterKeys):
            raise KeyUnavailable(f"the key service {self._name} returned no MasterKeys from {verb}")
        return answer


def _find(name: str) -> EntryPoint:
    found = entry_points(group=GROUP)
    if name in found.names:
        return found[name]
    installed = ", ".join(sorted(found.names)) or "none"
    raise KeyUnavailable(f"no such plugin is installed ({GROUP}: {installed})")

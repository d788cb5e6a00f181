"""Vaults with keys that tests know."""

from penstock.storage.sealing import KeyVault, MasterKeys


class FixedKeys:
    """A key service with the keys that it was given, the last of which is the current one."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def load(self) -> MasterKeys:
        return MasterKeys({name: name.encode().ljust(32, b"!") for name in self.names}, self.names[-1])

    def rotate(self, now_ms: int) -> MasterKeys:
        self.names = (*self.names, f"of {now_ms}")
        return self.load()


class CountedBytes:
    """Bytes that differ from call to call, and are the same in every run."""

    def __init__(self, start: int = 0) -> None:
        self.calls = start

    def __call__(self, count: int) -> bytes:
        self.calls += 1
        return self.calls.to_bytes(8, "big").rjust(count, b"r")[-count:] if count >= 8 else b"r" * count


def vault_of(*names: str, start: int = 0) -> KeyVault:
    service = FixedKeys(*(names or ("m",)))
    return KeyVault(service, service.load(), CountedBytes(start))

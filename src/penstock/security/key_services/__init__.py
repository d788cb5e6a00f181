"""Where the master keys of encryption at rest come from: three forms of `storage.sealing.KeyService`.

    keyring       a file with several keys, one of them current; a rotation adds one      (`keyring`)
    environment   a variable that has keys                                                (`key_sources`)
    command       a program that prints keys, such as the client of a secret store        (`key_sources`)
    plugin        an entry point of the group `penstock.key_services`, for a KMS          (`plugins`)

A master key is 32 random bytes with a name. It encrypts the keys that records are encrypted with, and never
leaves memory. Everything here blocks: a node calls it before its loop runs, and from a thread later.

Left out: keys that stay in an HSM and encrypt there. A plugin returns the key itself.
"""

from penstock.security.key_services.key_sources import CommandKeys, EnvironmentKeys
from penstock.security.key_services.keyring import KeyringKeys
from penstock.security.key_services.plugins import PluginKeys
from penstock.security.options import EncryptionOptions
from penstock.storage.sealing import KeyService

__all__ = ["CommandKeys", "EnvironmentKeys", "KeyringKeys", "PluginKeys", "key_service_of"]


def key_service_of(options: EncryptionOptions) -> KeyService:
    """The key service that was chosen."""
    match options.service:
        case "keyring":
            return KeyringKeys(options.keyring)
        case "environment":
            return EnvironmentKeys(options.variable)
        case "command":
            return CommandKeys(options.command, options.timeout_ms)
        case other:
            assert other == "plugin", other
            return PluginKeys(options.plugin, dict(options.plugin_options), options.timeout_ms)

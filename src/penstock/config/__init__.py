"""The configuration: its shape, where values come from, and what is wrong with them.

    defaults  <  penstock.yaml  <  environment  <  flags and --set      later wins
                      |                |                |
                      └──── text and where it stood ────┘
                                       |
                         one setting's type and range
                                       |
                              Config  +  origins

    settings      the shape of the file: one class per section
    addresses     listen addresses, listeners and voters
    schema        the settings as a flat table: key, type, default, description
    loader        all sources put together into one `Config`
    yaml_file     settings from `penstock.yaml`, with their lines
    environment   variables, and `${NAME:default}` in the file
    checks        settings that do not fit together
    warnings      what is allowed but risky, or not available yet
    errors        problems as lines for the operator
    reference     the reference page

Every source gives text, and the setting's own type decides what the text means: `no` is
a word where a word is expected and false where a truth value is, whether it stood in
YAML or in a variable. Each value keeps where it came from (`penstock.yaml:12`,
`PENSTOCK_NODE_ID`, `--set`), so that an error can say so. All errors are
collected before the first is shown.

`Config` is the shape of the file and nothing more. Components define their own frozen
options beside their code; only `node` reads a `Config` and passes the options on.

Left out: changing settings while a node runs, secrets (they are files named by settings,
never values), and per-topic settings, which are kept in the cluster's metadata.
"""

from penstock.config.addresses import ListenAddress, ListenerSetting, VoterAddress
from penstock.config.errors import ConfigError
from penstock.config.loader import DEFAULT_FILE, LoadedConfig, assemble, load, override
from penstock.config.schema import SETTINGS, Setting
from penstock.config.settings import (
    ClientDefaults,
    ClusterSettings,
    Config,
    DeliverySettings,
    FsyncSettings,
    GroupSettings,
    ListenSettings,
    LoggingSettings,
    MetricsSettings,
    NodeSettings,
    SecuritySettings,
    StorageSettings,
    TopicSettings,
)
from penstock.config.warnings import not_available, warnings_for

__all__ = [
    "Config",
    "NodeSettings",
    "ListenSettings",
    "ClusterSettings",
    "StorageSettings",
    "FsyncSettings",
    "TopicSettings",
    "DeliverySettings",
    "GroupSettings",
    "ClientDefaults",
    "SecuritySettings",
    "MetricsSettings",
    "LoggingSettings",
    "ListenAddress",
    "VoterAddress",
    "ListenerSetting",
    "Setting",
    "SETTINGS",
    "DEFAULT_FILE",
    "LoadedConfig",
    "load",
    "assemble",
    "override",
    "warnings_for",
    "not_available",
    "ConfigError",
]

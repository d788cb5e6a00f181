"""The reference page of the settings, written from the settings themselves."""

from collections.abc import Iterator

from penstock.config.environment import SHORT_NAMES
from penstock.config.schema import SETTINGS

_INTRODUCTION = """\
# Settings

Values come from four places, and later ones win: the defaults below, `penstock.yaml` in the
working directory (or the file named by `--config`), environment variables, and flags with
`--set section.key=value`. `penstock config show` prints what is in force and where it came from;
`penstock config check` says everything that is wrong.

In the file, `${NAME:default}` is replaced by the environment variable `NAME`, or by the default
when it is unset or empty; `$${` writes `${` itself, and inside `{ }` YAML wants it in quotes. Every
setting has an environment variable: `PENSTOCK_` and its key in capitals with underscores. Lists are
written `[a, b]` in the file and `a,b` in a variable. An address is `host:port`; `:8080` means every
interface. Unknown keys, and unknown variables that begin like a section, are errors.

One process serves several Kafka listeners. In the file each is written out, or on one line as a
variable or `--set` has it; `protocol` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
(see [security](../operations/security.md)):

```yaml
listen:
  kafka: 127.0.0.1:9092
  listeners:
    - {name: inside, protocol: PLAINTEXT, bind: "127.0.0.1:9192", advertised: "localhost:9192"}
    - outside=plaintext://127.0.0.1:9292
```
"""


def reference() -> Iterator[str]:
    """The lines of docs/reference/settings.md."""
    yield from _INTRODUCTION.splitlines()
    section = ""
    short = {key: name for name, key in SHORT_NAMES.items()}
    for setting in SETTINGS.values():
        if setting.key.partition(".")[0] != section:
            section = setting.key.partition(".")[0]
            yield from ("", f"## {section}", "", "| key | default | allowed | meaning |", "|---|---|---|---|")
        allowed = setting.allowed.replace("|", "\\|")
        also = f" Also `{short[setting.key]}`." if setting.key in short else ""
        default = f"`{setting.show(setting.default)}`"
        yield f"| `{setting.key}` | {default} | {allowed} | {setting.description}{also} |"

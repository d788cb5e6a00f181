"""One value somebody gave, before anybody has looked at it."""

from dataclasses import dataclass

from penstock.config.schema import Text


@dataclass(frozen=True, slots=True)
class Given:
    """A key, its text, and where it stood: `penstock.yaml:12`, `PENSTOCK_NODE_ID`, `--set`."""

    key: str
    text: Text
    source: str

    @property
    def shown(self) -> str:
        return self.text if isinstance(self.text, str) else "[" + ", ".join(self.text) + "]"

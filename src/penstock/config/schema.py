"""The settings as a flat table, derived from the section classes: key, type, default, words."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.config.addresses import (
    AddressOrAuto,
    ListenAddress,
    ListenerSetting,
    VoterAddress,
    parse_address_or_auto,
)
from penstock.config.settings import Config, ConfigSection
from penstock.security.address_mask import MASK, mask_address

Text = str | tuple[str, ...]
_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
NODE_ID = "node.id"
_NUMBERED_NAME = re.compile(r"[A-Za-z][A-Za-z0-9.-]*-([0-9]{1,10})")
_COMPOUND = {
    ListenAddress: "host:port, or :port for every interface",
    VoterAddress: "id@host:port",
    ListenerSetting: "name=protocol://host:port, or name=protocol://host:port/advertised",
    AddressOrAuto: "auto or host:port",
}
_PARSERS: dict[Any, Callable[[str], Any]] = {
    ListenAddress: ListenAddress.parse,
    VoterAddress: VoterAddress.parse,
    ListenerSetting: ListenerSetting.parse,
    AddressOrAuto: parse_address_or_auto,
}


def _mask_arguments(words: tuple[str, ...]) -> tuple[str, ...]:
    return (words[0], MASK) if len(words) > 1 else words


def _mask_values(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{word.partition('=')[0]}={MASK}" for word in words)


# Secrets are in files that settings name; these are where somebody may have put one all the same.
_MASKED: dict[str, Callable[[Any], Any]] = {
    "security.oauth.jwks": mask_address,
    "security.encryption.command": _mask_arguments,
    "security.encryption.plugin_options": _mask_values,
}


@dataclass(frozen=True)
class Setting:
    """One key of the configuration: what it means, and how to read it from text."""

    key: str
    kind: Any
    default: Any

    @property
    def description(self) -> str:
        return "".join(meta.description or "" for meta in _metas(self.kind))

    @cached_property
    def allowed(self) -> str:
        """What may be written, as words."""
        return _allowed(self.kind)

    @property
    def variable(self) -> str:
        """The environment variable that always sets it; some settings have a shorter one as well."""
        return "PENSTOCK_" + self.key.replace(".", "_").upper()

    def read(self, text: Text) -> Any:
        """Turn text into a value of this setting's type; ValueError when it is not one."""
        plain = _plain(self.kind)
        if get_origin(plain) is tuple:
            return self._read_list(text, get_args(plain)[0])
        if not isinstance(text, str):
            raise ValueError("a list")
        if self.key == NODE_ID and (named := _NUMBERED_NAME.fullmatch(text)) is not None:
            text = named[1]
        return _read_one(text, plain, self.kind)

    def _read_list(self, text: Text, element: Any) -> Any:
        parts = text if not isinstance(text, str) else [p for p in text.strip(" []").split(",") if p.strip()]
        values = tuple(_read_one(part.strip(), element, element) for part in parts)
        if any(meta.min_length and len(values) < meta.min_length for meta in _metas(self.kind)):
            raise ValueError("empty")
        return values

    def compose(self, fields: Mapping[str, str]) -> str:
        """The text of one element that the file writes as a mapping; ValueError when none is allowed."""
        if _plain(self.kind) != tuple[ListenerSetting, ...]:
            raise ValueError(f"expected {self.allowed}")
        return ListenerSetting.compose(fields)

    def masked(self, value: Any) -> Any:
        """The value as it may be shown: without what may be a secret."""
        mask = _MASKED.get(self.key)
        return value if mask is None else mask(value)

    def show(self, value: Any) -> str:
        """The text that `read` turns back into `value`."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if get_origin(_plain(self.kind)) is tuple:
            return "[" + ", ".join(str(part) for part in value) + "]"
        return str(value)


def settings_of(section: type[ConfigSection], prefix: str = "") -> Iterator[Setting]:
    """Every leaf below a section, in the order in which it is written down."""
    kinds = get_type_hints(section, include_extras=True)
    for field in msgspec.structs.fields(section):
        kind = kinds[field.name]
        if isinstance(kind, type) and issubclass(kind, ConfigSection):
            yield from settings_of(kind, f"{prefix}{field.name}.")
        else:
            yield Setting(prefix + field.name, kind, field.default)


def _read_one(text: str, plain: Any, kind: Any) -> Any:
    if (parse := _PARSERS.get(plain)) is not None:
        return parse(text)
    if plain is bool:
        if (truth := _TRUTH.get(text.lower())) is None:
            raise ValueError(f"not a truth value: {text!r}")
        return truth
    # Integers, words and unions of the two: msgspec knows their ranges. Its complaint is a ValueError.
    return msgspec.convert(text, kind, strict=False)


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _metas(kind: Any) -> list[msgspec.Meta]:
    return [meta for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]


def _allowed(kind: Any) -> str:
    plain = _plain(kind)
    if plain in _COMPOUND:
        return _COMPOUND[plain]
    origin = get_origin(plain)
    if origin is tuple:
        least = " (at least one)" if any(meta.min_length for meta in _metas(kind)) else ""
        return f"a list of {_allowed(get_args(plain)[0])}{least}"
    if origin is Union or origin is type(int | str):
        return " or ".join(_allowed(part) for part in get_args(plain))
    if origin is Literal:
        return " | ".join(str(word) for word in get_args(plain))
    if plain is bool:
        return "true | false"
    if plain is int:
        return _allowed_range(kind)
    return "text"


def _allowed_range(kind: Any) -> str:
    meta = _metas(kind)[0]
    return f"a whole number from {meta.ge} to {meta.le}"


SETTINGS = {setting.key: setting for setting in settings_of(Config)}
SECTIONS = {key.rpartition(".")[0] for key in SETTINGS} - {""}

"""`dataclass`, as the standard library has it, made in half of the time if it is frozen and slotted.

A node has two hundred such classes, and clients wait for them after a crash. The standard library
compiles six functions for each; here one, `__init__`, is compiled and the others are shared or closures.
A class that inherits from a dataclass is left to the standard library.

Left out, and refused when the class is made: fields that `__init__` does not take (`init=False`, `InitVar`).
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *, frozen: bool = False, slots: bool = False, kw_only: bool = False
    ) -> Callable[[type], type]:
        """Make a dataclass of the decorated class."""

        def make(written):
            # The standard library lets a frozen dataclass inherit from none that is not, and the reverse.
            inherits = any(dataclasses.is_dataclass(base) for base in written.__mro__[1:])
            if not (frozen and slots) or inherits:
                return dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only)(written)
            return _make_frozen(written, kw_only)

        return make


_ABSENT: Any = object()


def _make_frozen(written: type, kw_only: bool) -> type:
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(written)
    made.__dataclass_params__.frozen = True
    fields = dataclasses.fields(made)
    # `fields` does not show an InitVar, nor a ClassVar, which is none of the instance's.
    assert not any(isinstance(each.type, dataclasses.InitVar) for each in made.__dataclass_fields__.values())
    assert all(field.init for field in fields)
    compared = [field.name for field in fields if field.compare]
    key = attrgetter(*compared) if len(compared) > 1 else _key_of(compared)

    def equal(self: object, other: object) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(key(self))

    methods: dict[str, Any] = {"__init__": _init(made, fields), "__eq__": equal, "__hash__": hashed}
    for name, method in (methods | _SHARED).items():
        # A class that has its own __eq__ alone has None as its __hash__.
        if made.__dict__.get(name) is None:
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def _key_of(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    return lambda value: tuple([getattr(value, name) for name in names])


def _init(made: Any, fields: tuple["dataclasses.Field[Any]", ...]) -> Callable[..., None]:
    namespace: dict[str, Any] = {"_absent": _ABSENT, "_set": object.__setattr__}
    parameters, body = ["self"], []
    for field in sorted(fields, key=lambda field: bool(field.kw_only)):
        name = field.name
        if field.kw_only and "*" not in parameters:
            parameters.append("*")
        given = name
        if field.default_factory is not dataclasses.MISSING:
            namespace[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_absent")
            given = f"_make_{name}() if {name} is _absent else {name}"
        elif field.default is not dataclasses.MISSING:
            namespace[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(f" _set(self, {name!r}, {given})")
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass"), namespace)
    init: Callable[..., None] = namespace["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _repr(self: Any) -> str:
    shown = [
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    ]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_set(_self: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SHARED: dict[str, Any] = {
    "__repr__": _repr,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}

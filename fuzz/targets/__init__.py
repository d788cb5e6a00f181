"""One module per family of parsers; each exports `TARGETS`."""

import importlib
import pkgutil

from fuzz.harness import Target


def all_targets() -> tuple[Target, ...]:
    """Every target of every module here, in a fixed order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    targets = tuple(target for module in modules for target in module.TARGETS)
    assert len({target.name for target in targets}) == len(targets), "two targets have the same name"
    return targets

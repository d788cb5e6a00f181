"""Which pipelines and jobs there are: ours by name, anybody's as `module:attribute`."""

import importlib
import os
import sys
from collections.abc import Mapping

from penstock.pipeline.errors import BadOption
from penstock.pipeline.running.registry import Job, Pipeline, UnknownPipeline


def pipelines() -> Mapping[str, Pipeline]:
    from penstock.pipeline.metrics import PIPELINES

    return PIPELINES


def jobs() -> Mapping[str, Job]:
    from penstock.pipeline.jobs import JOBS

    return JOBS


def find(name: str) -> Pipeline | Job:
    """What a name stands for; raises `UnknownPipeline`, or `BadOption` if a module has no such thing."""
    if ":" in name:
        return _of_module(name)
    known: dict[str, Pipeline | Job] = {**pipelines(), **jobs()}
    if name not in known:
        raise UnknownPipeline(name, known)
    return known[name]


def is_job(found: Pipeline | Job) -> bool:
    return hasattr(found, "run")


def _of_module(name: str) -> Pipeline | Job:
    module, _, attribute = name.partition(":")
    # As `python -m` does: what lies where the command is typed can be named.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Pipeline | Job = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadOption("NAME", f"{name!r} cannot be loaded: {error}") from None
    if not hasattr(found, "configure"):
        raise BadOption("NAME", f"{name!r} is neither a pipeline nor a job: it has no method configure")
    return found

"""The optional compiled build; everything else is in pyproject.toml.

With PENSTOCK_NATIVE=1 the modules below are compiled with mypyc: in place by `make
native`, into a wheel by `PENSTOCK_NATIVE=1 pip wheel --no-build-isolation .`. Where mypy
or a C compiler is missing, one line says so and the same modules run as Python.

Compiled modules win over the sources beside them: run `make native` again after a
change, or remove the .so files.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

# Modules that loop over bytes. The header and the batch check are not among them: they
# spend their time inside `struct` and the CRC, and calling those costs compiled code more.
HOT_MODULES = (
    "src/penstock/core/records/varints.py",
    "src/penstock/core/records/record.py",
    "src/penstock/core/records/validation.py",
    "src/penstock/core/records/partitioner.py",
    "src/penstock/spark/reading/record_ends.py",
)


def stay_with_python(reason: str) -> list[Extension]:
    sys.stdout.write(f"penstock: building without compiled modules: {reason}\n")
    return []


def extensions() -> list[Extension]:
    """What to compile: nothing unless it was asked for and can be done."""
    if os.environ.get("PENSTOCK_NATIVE") != "1":
        return []
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(os.environ.get("CC", compiler)) is None:
        return stay_with_python("there is no C compiler")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return stay_with_python("Python's C headers are missing")
    try:
        from mypyc.build import mypycify
    except ImportError:
        return stay_with_python("mypy is not installed")
    try:
        return mypycify(list(HOT_MODULES), opt_level="3", group_name="penstock")
    except SystemExit:
        return stay_with_python("mypyc refused a module")


class BuildAllOrNothing(build_ext):
    """Half a set of compiled modules cannot be imported, so a failure drops them all."""

    def run(self) -> None:
        """Compile, or clean up and carry on without."""
        try:
            super().run()
        except (BaseError, CCompilerError):
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
                Path(self.build_lib, self.get_ext_filename(extension.name)).unlink(missing_ok=True)
            self.extensions = stay_with_python("the compiler failed")


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNothing})

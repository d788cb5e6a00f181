"""The code of the gRPC service, and the optional compiled build; everything else is in pyproject.toml.

Every build first makes `penstock.v1` of its .proto, in the source tree, where git ignores it. In a checkout
`python setup.py protos` does that alone.

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
from typing import ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
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

SOURCES = Path(__file__).parent / "src"
PROTO_ROOT = SOURCES / "penstock/server/grpc/proto"
PROTO = PROTO_ROOT / "penstock/v1/penstock.proto"


def generate_protos() -> None:
    """Write `penstock_pb2`, its types and `penstock_pb2_grpc` if they are older than the .proto."""
    generated = [SOURCES / "penstock/v1" / f"penstock_pb2{ending}" for ending in (".py", ".pyi", "_grpc.py")]
    if all(file.exists() and file.stat().st_mtime >= PROTO.stat().st_mtime for file in generated):
        return
    try:
        from grpc_tools import protoc
    except ImportError:
        sys.exit("penstock: the code of the gRPC service is made by grpcio-tools: pip install grpcio-tools")
    outputs = [f"--{kind}_out={SOURCES}" for kind in ("python", "pyi", "grpc_python")]
    includes = [f"-I{PROTO_ROOT}", f"-I{Path(protoc.__file__).parent / '_proto'}"]
    if protoc.main(["protoc", *includes, *outputs, str(PROTO)]) != 0:
        sys.exit(f"penstock: {PROTO} was refused by protoc")


class Protos(Command):
    """Make the code of the gRPC service."""

    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None:
        """Nothing to choose."""

    def finalize_options(self) -> None:
        """Nothing to choose."""

    def run(self) -> None:
        """Write the modules that are older than their source."""
        generate_protos()


class BuildWithProtos(build_py):
    """Wheels, and checkouts that are installed as editable, have the generated code."""

    def run(self) -> None:
        """Generate before modules are looked for."""
        generate_protos()
        super().run()


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


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildAllOrNothing, "build_py": BuildWithProtos, "protos": Protos},
)

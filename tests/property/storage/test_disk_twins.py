"""The disk in memory does on every sequence of calls what the real one does."""

import tempfile
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.storage.disk import CrashableDisk, Disk, DiskFailed, PosixDisk

names = st.sampled_from(["a", "b", "dir", "dir/a", "dir/b", "dir/deep", "dir/deep/a", "new/a"])
sizes = st.integers(0, 3000)
contents = st.binary(max_size=40) | st.builds(lambda size: b"x" * size, sizes)

calls = st.one_of(
    st.tuples(st.just("write"), names, contents),
    st.tuples(st.just("pwrite"), names, sizes, contents),
    st.tuples(st.just("truncate"), names, sizes),
    st.tuples(st.just("read"), names, sizes, sizes),
    st.tuples(st.just("exclusive"), names),
    st.tuples(st.sampled_from(["exists", "is_directory", "size", "listdir", "make_directory"]), names),
    st.tuples(st.sampled_from(["remove", "remove_tree", "sync_directory"]), names),
    st.tuples(st.just("rename"), names, names),
)


def on_file(disk: Disk, path: str, act: Callable[[Any], object], **how: bool) -> object:
    file = disk.open(path, **how)
    try:
        return act(file)
    finally:
        file.close()


def do(disk: Disk, call: tuple[Any, ...]) -> object:
    """The result of one call, or how it failed."""
    kind, path, *rest = call
    try:
        match kind:
            case "write":
                return on_file(disk, path, lambda file: (file.append(*rest), file.size()), create=True)
            case "pwrite":
                return on_file(disk, path, lambda file: (file.pwrite(*rest), file.size()))
            case "truncate":
                return on_file(disk, path, lambda file: (file.truncate(*rest), file.sync(), file.size()))
            case "read":
                return on_file(
                    disk, path, lambda file: (file.pread(*rest), bytes(file.map_readonly())), readonly=True
                )
            case "exclusive":
                return on_file(disk, path, lambda file: file.size(), exclusive=True)
            case _:
                return getattr(disk, kind)(path, *rest)
    except DiskFailed as failed:
        return type(failed), failed.operation


@settings(max_examples=200)
@given(st.lists(calls, max_size=25))
@example([("make_directory", "dir/a"), ("rename", "dir", "dir")])
def test_the_same_calls_get_the_same_answers(made: list[tuple[Any, ...]]) -> None:
    made = [call for call in made if not (call[0] == "rename" and call[2].startswith(call[1] + "/"))]
    memory = CrashableDisk()
    with tempfile.TemporaryDirectory() as root:
        real = PosixDisk(root, readers_open_max=2)

        answers = [(do(real, call), do(memory, call)) for call in made]

    for call, (on_disk, in_memory) in zip(made, answers, strict=True):
        if call[0] == "size" and isinstance(in_memory, tuple):
            continue  # a directory's size is the filesystem's own affair
        assert on_disk == in_memory, call

import errno
from pathlib import Path

import pytest

from penstock.node.run import DataDirectoryUnusable


@pytest.mark.parametrize(
    ("code", "obstacle"),
    [
        (errno.ENOSPC, "there is no space left on its disk"),
        (errno.EDQUOT, "there is no space left on its disk"),
        (errno.EACCES, "no permission to write to {above}"),
        (errno.EROFS, "read-only file system"),
    ],
)
def test_a_data_directory_that_cannot_be_used_is_named_with_what_is_in_the_way(
    code: int, obstacle: str, tmp_path: Path
) -> None:
    path = tmp_path / "not" / "there"

    error = DataDirectoryUnusable(str(path), code)

    assert str(error) == f"cannot use the data directory {path}: {obstacle.format(above=tmp_path)}"

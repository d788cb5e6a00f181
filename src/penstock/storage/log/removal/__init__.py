"""Taking records out of a log: at its start (retention) and at its end (truncation).

The rule for both: the checkpoint says first, durably, what will be gone; then the files
go. A power cut in between leaves files that the next start recognises and removes, or
a tail that is simply read again. The other way round it would find a hole, and have to
call it corruption.

Left out: compaction, which replaces sealed segments by smaller ones and has a package of its own.
"""

from penstock.storage.log.removal.retention import delete_records, expire
from penstock.storage.log.removal.truncation import truncate_fully, truncate_to

__all__ = ["expire", "delete_records", "truncate_to", "truncate_fully"]

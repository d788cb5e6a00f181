"""Everything that is kept on disk: the disk port, group commit, the data directory and the log.

Nothing in here knows about sockets, clocks or the event loop: calls that wait take a
callback, and time arrives as an argument. From the bottom up:

* `disk` is the port to files and directories, with a crashable and a failing twin;
* `commit` gathers requests for durability into rounds, so that many share one sync;
* `data_directory` is the layout and identity of one data directory;
* `sealing` has the formats of encryption at rest;
* `log` is a partition: segments, indexes, checkpoints, recovery, retention.

Left out: encryption and tiering attach to segment descriptors later; replication is built
on top of the log and not part of it.
"""

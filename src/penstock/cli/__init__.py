"""The `penstock` command: what an operator types, translated into calls.

    main ──> commands ──> one command's module ──> config, storage, runtime …
             (a table)    (imported only when it is asked for)

    entry, commands, output    start and exit codes; the table of commands; tables, JSON, progress
    up, node_process           penstock up; one node in this process
    local_cluster, child       several nodes on this machine; one in a child process
    configuration, version     penstock config, penstock version
    broker_options             --bootstrap and --option, for commands that talk to a broker
    topics, produce, consume, groups    those commands
    cluster                    penstock cluster
    logs, log_inspection       penstock log: partition directories, read without a broker
    bench, demo                penstock bench, penstock demo
    reference                  the reference pages, written from the code

A command is a function with typer annotations, or a `typer.Typer` of such functions.
Ours stand in the table of `penstock.cli.commands`; those of other packages (the simulator,
the Spark pipeline) announce themselves as entry points of the group `penstock.commands`, so
that nothing here imports them and a broken one breaks only itself. Modules of commands import
what is heavy inside the function: `--version` and `--help` stay fast.

How a command ends is the same everywhere:

    0    done
    1    refused or failed, with one line on stderr and never a traceback
    2    used wrongly
    130  interrupted, with one line

Left out: commands for what does not exist yet. A command appears together with the
thing that it drives.
"""

from penstock.cli.entry import main

__all__ = ["main"]

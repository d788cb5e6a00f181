"""Running pipelines: a session with the right Java, progress, status, a clean stop.

    command      `penstock pipeline list|run|status`
    registry     what a pipeline and a job are
    launch       a run from its start to its end: lock, signals, supervision, a clean stop
    session      a Spark session that works from a pip install
    java         which Java it runs on
    checkpoint   whose checkpoint it is
    progress     what the queries do, gathered in one place
    display      how that is shown on a terminal or in a log
    status       the status file, and figures for Prometheus
    failures     one line out of Spark's errors

A run ends in one of three ways: everything that was there is processed (`--once`), somebody
stops it (SIGTERM, Ctrl-C), or a query fails. The first two are exit code 0, and a run that is
started again goes on where the last one ended; that holds after a kill -9 as well, since
only Spark's checkpoint and the commits of the tables record what is done.

Left out: restarting a query that failed. A process supervisor (systemd, Kubernetes) does that
better, and sees the exit code.
"""

"""Running pipelines: a session with the right Java, progress, status, a clean stop.

    registry     what a pipeline and a job are, and which there are
    session      a Spark session that works from a pip install
    checkpoint   whose checkpoint it is
    launch       a run from its start to its end
    supervision  following the queries, and stopping them in order
    watching     what the queries do, gathered in one place
    reporting    how that is shown: terminal, file, Prometheus
    failures     one line out of Spark's errors
    stopping     SIGTERM and SIGINT
    locking      one run at a time

A run ends in one of three ways: everything that was there is dealt with (`--once`), somebody
asks for it (SIGTERM, Ctrl-C), or a query fails. The first two are exit code 0, and a run that is
started again goes on where the last one ended; that holds after a kill -9 as well, since
nothing but Spark's checkpoint and the commits of the tables says what is done.

Left out: restarting a query that failed. Whoever runs the runner (systemd, Kubernetes) does that
better, and sees the exit code.
"""

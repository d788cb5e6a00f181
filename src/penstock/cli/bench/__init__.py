"""`penstock bench`: how fast a broker is, beside what the machine and the client could do at best.

    command       the options, and one function per kind of measurement
    scenarios     which broker; produce, consume, latency, end-to-end; the limits of client, disk and socket
    gateway_load  load on REST, gRPC and WebSocket
    queue_load    load on queues
    delay_load    delayed messages at a rate, in processes of their own: how late they are
    report        percentiles, commit, machine, tables and JSON
    compare       the same scenarios against several brokers, and their ratios
    fetcher       a process that keeps a broker busy with Fetch requests
    waiter        a process that waits for stamped records and says how old they were

A figure alone says little on a machine that others use too. Every report therefore carries
the limits measured in the same run, on the same directory, and compares by ratio.

All of it is bounded: records, seconds, and the children it starts. A throw-away broker is
started unless `--bootstrap` names one, and removed with its data.

Left out: many machines, many clients. One process is the load, or two where one must not hold up the other.
"""

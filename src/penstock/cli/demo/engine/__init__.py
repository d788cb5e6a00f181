"""`penstock demo --log-engine`: the log engine alone, on a throw-away data directory.

    series ──> batches ──> produce ──> read back ──> seek        one process, four partitions
                                                                 appends, group commit, indexes
    series ──> writer, killed in the middle of a write ──> recover       another process

Everything runs as it would in a broker: the production runtime with its sync helper, the
default `fsync: every`, real files. What is read is compared with the demo's own account of
what it sent, and a difference ends the demo with exit code 1.

The killed writer stops itself halfway through a batch and waits for its SIGKILL, so that the
torn write is there every time and not by luck. A killed process leaves its pages to the
kernel: what a power cut would take is the crashable disk's subject, in the tests.

Left out: the network, which `penstock demo` is about.
"""

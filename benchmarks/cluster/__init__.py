"""What replication costs: three brokers on one machine beside a single one, in the same run.

    python -m benchmarks.cluster [--messages N] [--directory DIR] [--output FILE]

Left out: brokers on machines of their own. Here three brokers, their three disks' worth of
writing and the client share the cores and the device of one machine, so that every figure is a
lower bound, and the ratios count.
"""

"""Parts of answers that several handlers share, or that are too long for one.

`operations` are a caller's rights as a field of bits; `metadata_rows` the topics of a
Metadata answer; `config_resources` the things that can be configured, as Kafka numbers them.

Left out: error codes and addresses, which every handler needs.
"""

"""Commands that talk to a broker: `topic`, `produce`, `consume` and `group`.

Each is a small translation: options into a call of `penstock.client`, and what comes back
into a table, JSON, or lines. They know the broker by its Kafka address alone and work with
any Kafka broker.

    options     --bootstrap and --option, which all of them have
    topics      penstock topic create|list|describe|alter|delete
    produce     penstock produce TOPIC: lines of stdin or of a file
    consume     penstock consume TOPIC: to stdout, up to the end or for ever
    groups      penstock group list|describe|reset|delete

Records go to stdout and everything else to stderr, so that `consume a | produce b` works.
A reader that leaves (`| head`) ends `consume` without a word, and what was not written out
is not committed.

Left out: delayed records (`--delay`), which come with the queue view.
"""

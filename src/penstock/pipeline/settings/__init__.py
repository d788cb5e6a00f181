"""Options as Spark hands them over, and the `kafka.*` ones as settings for librdkafka.

    lookup      an option by its name, whatever its case; integers and booleans
    kafka       the keys below `kafka.`: which pass, which are renamed, which are refused
    security    what Java says in JAAS lines and key stores, said in librdkafka's words

A query written for the official connector keeps its options: names that only the Java client
has are translated where librdkafka has the same thing under another name, left out where they
tune machinery that does not exist here, and refused where leaving them out would change what
the user gets. Whatever is left is passed on as it is, and librdkafka refuses what it does not
know by name.

Spark lower-cases the keys of `dict(options)`, so every lookup here ignores case.

Left out: Java key stores (JKS), Kerberos, OAuth, and anything that names a Java class.
"""

from penstock.pipeline.settings.kafka import kafka_endpoint, kafka_settings
from penstock.pipeline.settings.lookup import boolean_option, choice_option, integer_option, option

__all__ = ["kafka_settings", "kafka_endpoint", "option", "integer_option", "boolean_option", "choice_option"]

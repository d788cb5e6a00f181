"""Spark's own connector for Kafka, as jars for `spark.jars`."""

import re
from pathlib import Path

from benchmarks.peers.maven import Artifact, PeerUnavailable, cache_root, fetch

GROUP = "org.apache.spark"
CONNECTOR = "spark-sql-kafka-0-10_2.13"
TOKENS = "spark-token-provider-kafka-0-10_2.13"
# A mirror may lack the newest release, or one of its two parts. This older pair was seen to run on
# Spark 4.2 and 4.3: what the connector calls in Spark, and in its other part, did not change.
OLDER_PAIR = ("4.2.0", "4.0.0")

# Everything else it depends on is in Spark already, in a version that Spark was tested with.
_WANTED = re.compile(
    rf"({re.escape(CONNECTOR)}|{re.escape(TOKENS)}|kafka-clients|commons-pool2)-(\d[\w.-]*)\.jar"
)


def connector_jars(spark_version: str, cache: Path | None = None) -> list[Path]:
    """The connector's jars for a release of Spark, fetched the first time; else `PeerUnavailable`."""
    kept = (cache or cache_root() / "spark-connector") / spark_version
    if not kept.is_dir():
        _fetch(spark_version, kept)
    found = sorted(kept.glob("*.jar"))
    if len(found) != len({"connector", "tokens", "clients", "pool"}):
        raise PeerUnavailable(f"{kept} has {[one.name for one in found]}, which is not Spark's connector")
    return found


def connector_version(jars: list[Path]) -> str:
    """Which release these jars are, in words for a report."""
    found = {match[1]: match[2] for jar in jars if (match := _WANTED.fullmatch(jar.name))}
    return f"{found[CONNECTOR]}, kafka-clients {found['kafka-clients']}"


def _fetch(spark_version: str, kept: Path) -> None:
    try:
        _fetch_pair((spark_version, spark_version), kept)
    except PeerUnavailable as newest:
        try:
            _fetch_pair(OLDER_PAIR, kept)
        except PeerUnavailable as older:
            raise PeerUnavailable(f"{newest}; {older}") from None


def _fetch_pair(versions: tuple[str, str], kept: Path) -> None:
    connector, tokens = versions
    artifacts = [Artifact(GROUP, CONNECTOR, connector), Artifact(GROUP, TOKENS, tokens)]
    fetch(artifacts, kept, lambda name: _WANTED.fullmatch(name) is not None)

"""What security costs, side by side in one run: TLS, encryption at rest, both, and access rules.

python -m benchmarks.security_costs [--rounds N] [--records N] [--json F]

A node for each row, all of them of this tree, and in every round each of them in turn, from another one
on each time. librdkafka produces records of 1 KB to one partition with acks=1, in batches of up to 1 MB,
and then reads them from the beginning. Reported are the best rates of all rounds, which other work on the
machine disturbs least, the CPU of the node's processes for each megabyte (the least of all rounds), and
their ratio to plain text.

    plain      nothing is secured
    tls        the listener speaks TLS 1.3
    at rest    records are sealed on disk
    both       tls and at rest
    rules      10,000 access rules, and a client that may do what some of them say: each request is judged
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.cluster.nodes import nodes
from benchmarks.macro.pipelined import produce_cpu
from benchmarks.micro.__main__ import commit, machine
from benchmarks.side_by_side import show
from penstock.cli.bench import scenarios
from penstock.cli.bench.report import MEGABYTE, Figures
from penstock.cli.bench.scenarios import BenchTarget
from penstock.client import ClientError, Endpoint
from penstock.client.connection import BrokerConnection
from penstock.client.load import ProduceLoad
from penstock.core.model import NodeId
from penstock.core.protocol.messages.create_acls import CreateAclsRequest, CreateAclsRequestAcl
from penstock.security import AclOperation, ResourceType
from penstock.security.certificates import create_authority, create_node_certificate
from penstock.security.key_services.keyring import KeyringKeys

VALUE_BYTES = 1_000
RULES = 10_000
RULES_AT_ONCE = 1_000
ALLOW, LITERAL = 3, 3
PLAIN, TLS, AT_REST, BOTH, RULED = "plain", "tls", "at rest", "both", "rules"
SMALL_REQUESTS = 20_000


@dataclass(frozen=True, slots=True)
class SecuredNode:
    """One row."""

    name: str
    target: BenchTarget

    @property
    def speaks_plainly(self) -> bool:
        return self.target.endpoint.is_plaintext


@contextmanager
def secured_nodes(directory: str | None) -> Iterator[list[SecuredNode]]:
    """Start a node for each row."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-costs-", dir=directory)))
        create_authority(root / "certs", "costs")
        create_node_certificate(root / "certs", NodeId(1), ["127.0.0.1"])
        tls = (
            "listen.protocol=SSL",
            f"security.tls.certificate={root}/certs/node-1.pem",
            f"security.tls.key={root}/certs/node-1.key",
        )
        keyring = root / "keyring"
        KeyringKeys(str(keyring)).create(time.time_ns() // 1_000_000)
        at_rest = ("security.encryption.enabled=true", f"security.encryption.keyring={keyring}")
        rules = ("security.enabled=true", "security.open_without_rules=true")
        trust = {"security.protocol": "ssl", "ssl.ca.location": f"{root}/certs/ca.pem"}
        found = []
        for name, settings, options in (
            (PLAIN, (), {}),
            (TLS, tls, trust),
            (AT_REST, at_rest, {}),
            (BOTH, (*tls, *at_rest), trust),
            (RULED, rules, {}),
        ):
            started = stack.enter_context(nodes(1, directory, ["rest.enabled=false", *settings]))
            target = BenchTarget(name, Endpoint(started.bootstrap, options), started.pids[0])
            found.append(SecuredNode(name, target))
        add_rules(found[-1].target)
        yield found


def add_rules(target: BenchTarget) -> None:
    """The first of them say what the client may do; the others are of other users."""
    host, _, port = target.endpoint.bootstrap.rpartition(":")
    connection = BrokerConnection((host, int(port)))
    own = [
        rule(kind, "*", "User:ANONYMOUS", AclOperation.ALL)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    own.append(rule(ResourceType.CLUSTER, "kafka-cluster", "User:ANONYMOUS", AclOperation.ALL))
    others = [
        rule(ResourceType.TOPIC, f"topic-{number}", f"User:user-{number}", AclOperation.READ)
        for number in range(RULES - len(own))
    ]
    every = own + others
    for start in range(0, RULES, RULES_AT_ONCE):
        request = CreateAclsRequest(creations=tuple(every[start : start + RULES_AT_ONCE]))
        if any(one.error_code for one in connection.ask(request).results):
            raise ClientError("an access rule was refused")
    connection.close()


def rule(kind: ResourceType, name: str, principal: str, operation: AclOperation) -> CreateAclsRequestAcl:
    return CreateAclsRequestAcl(
        resource_type=kind.value,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal=principal,
        host="*",
        operation=operation.value,
        permission_type=ALLOW,
    )


def measured(
    target: BenchTarget, run: Callable[[BenchTarget, ProduceLoad], Figures], load: ProduceLoad
) -> dict[str, float]:
    """Rate, and what each megabyte costs the node."""
    figures = run(target, load)
    megabytes = load.records * load.value_bytes / MEGABYTE
    cpu_ms = figures["broker_cpu_s"] * 1e3
    return {"msg_per_s": figures["messages_per_s"], "cpu_ms_per_mb": round(cpu_ms / megabytes, 3)}


def run(found: Sequence[SecuredNode], rounds: int, records: int) -> dict[str, dict[str, list[float]]]:
    """Figures by row, a value for each round."""
    load = ProduceLoad(records, VALUE_BYTES)
    results: dict[str, dict[str, list[float]]] = {node.name: {} for node in found}

    def note(name: str, what: str, figures: dict[str, float]) -> None:
        for figure, value in figures.items():
            results[name].setdefault(f"{what} {figure}", []).append(value)

    for number in range(rounds):
        first = number % len(found)
        for node in (*found[first:], *found[:first]):
            target = node.target
            print(f"round {number + 1}: {node.name}", file=sys.stderr, flush=True)
            os.sync()
            note(node.name, "produce", measured(target, scenarios.produce, load))
            note(node.name, "consume", measured(target, scenarios.consume, load))
            if node.speaks_plainly:
                small = produce_cpu(target, SMALL_REQUESTS)
                note(node.name, "small", {"cpu_us": small["broker_cpu_us_per_produce"]})
    return results


def table(results: dict[str, dict[str, list[float]]]) -> list[list[str]]:
    """The best of all rounds, and its ratio to plain text."""
    figures = list(results[PLAIN])
    lines = [["", *figures]]
    for name, by_figure in results.items():
        cells = []
        for figure in figures:
            if figure not in by_figure:
                cells.append("-")
                continue
            best_of = max if figure.endswith("per_s") else min
            best, plain = best_of(by_figure[figure]), best_of(results[PLAIN][figure])
            cells.append(
                f"{best:,.2f} ({best / plain:.2f})" if best < 100 else f"{best:,.0f} ({best / plain:.2f})"
            )
        lines.append([name, *cells])
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security_costs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--directory", help="where the data goes")
    parser.add_argument("--json", type=Path, help="where all figures go")
    given = parser.parse_args()
    with secured_nodes(given.directory) as found:
        results = run(found, given.rounds, given.records)
    show(table(results))
    if given.json is not None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        report = {"commit": commit(), "when": now, "machine": machine(), "results": results}
        given.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

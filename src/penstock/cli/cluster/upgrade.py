"""`penstock cluster upgrade`: the end of a rolling upgrade."""

from typing import Any

import typer

from penstock.cli.broker_options import BOOTSTRAP
from penstock.cli.cluster.admin_client import AdminClient
from penstock.cli.output import JSON_OPTION, show_json, show_table

COLUMNS = ("feature", "level", "highest", "outcome")


def upgrade(
    *,
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be raised, and raise nothing."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
) -> None:
    """Raise every feature to the highest level that the broker asked knows.

    Once all nodes run a new version: until then, and until this is done, nodes can go back to the
    version before. Every node must support the new levels; metadata.version never goes back.
    """
    from penstock.cli.cluster.admin_client import admin_client

    with admin_client(bootstrap) as admin:
        rows = _upgrade(admin, dry_run=dry_run)
    if as_json:
        show_json(rows)
    else:
        show_table("", COLUMNS, [tuple(row.values()) for row in rows])


def _upgrade(admin: "AdminClient", *, dry_run: bool) -> list[dict[str, Any]]:
    from penstock.cli.cluster.admin_client import expect
    from penstock.core.protocol.messages.api_versions import ApiVersionsRequest
    from penstock.core.protocol.messages.update_features import (
        UpdateFeaturesRequest,
        UpdateFeaturesRequestFeature,
    )

    known = admin.ask(ApiVersionsRequest())
    levels = {one.name: one.max_version_level for one in known.finalized_features}
    raised = {
        one.name: one.max_version
        for one in known.supported_features
        if one.max_version > levels.get(one.name, 0)
    }
    if raised:
        updates = tuple(
            UpdateFeaturesRequestFeature(feature=name, max_version_level=level)
            for name, level in raised.items()
        )
        answer = admin.ask(UpdateFeaturesRequest(feature_updates=updates, validate_only=dry_run))
        expect("the upgrade", answer.error_code, answer.error_message)
    done = "can be raised" if dry_run else "raised"
    return [
        {
            "feature": one.name,
            "level": levels.get(one.name, 0),
            "highest": one.max_version,
            "outcome": done if one.name in raised else "unchanged",
        }
        for one in known.supported_features
    ]

"""What processes of a node get of its environment."""

from penstock.runtime.child_command import child_environment


def test_children_get_what_they_need_to_run_and_no_secret() -> None:
    needed = {"PATH": "/bin", "LANG": "C", "LC_ALL": "C", "PYTHONPATH": "src", "TZ": "UTC"}
    secrets = {
        "PENSTOCK_OPTION_SASL_PASSWORD": "hunter2",
        "PENSTOCK_API_KEY": "pk_hunter2",
        "MASTER_KEYS": "hunter2",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "VAULT_TOKEN": "hunter2",
        "LCD": "hunter2",
    }

    assert child_environment(needed | secrets) == needed

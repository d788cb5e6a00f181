"""Credentials of users that do not exist."""

from collections import Counter

from penstock.core.metadata.access import ScramCredential, ScramMechanism
from penstock.core.metadata.image import PersistentMap
from penstock.security.decoys import Credentials, DecoyCredentials

SHA_256 = ScramMechanism.SCRAM_SHA_256


def credential(user: str, iterations: int, salt_bytes: int, server_key: bytes = b"k") -> ScramCredential:
    return ScramCredential(user, SHA_256, bytes(salt_bytes), iterations, b"s", server_key)


def stored(*credentials: ScramCredential) -> Credentials:
    found: Credentials = PersistentMap()
    for each in credentials:
        found = found.put((each.user, each.mechanism), each)
    return found


def test_they_look_like_the_users_there_are() -> None:
    decoys = DecoyCredentials(b"secret")
    decoys.on_credentials(
        stored(*(credential(f"u{number}", 8_192 if number % 4 else 4_096, 24) for number in range(40)))
    )

    made = Counter(
        (decoy.iterations, len(decoy.salt)) for decoy in (decoys.of(f"x{n}", SHA_256) for n in range(1_000))
    )

    assert made.keys() == {(8_192, 24), (4_096, 24)}
    assert 150 < made[4_096, 24] < 350


def test_every_node_makes_the_same_ones_and_another_user_changes_nothing() -> None:
    one, other = DecoyCredentials(b"one"), DecoyCredentials(b"other")
    users = stored(credential("alice", 8_192, 16, b"her key"))
    one.on_credentials(users)
    other.on_credentials(users)
    before = one.of("nobody", SHA_256)

    one.on_credentials(users.put(("bob", SHA_256), credential("bob", 8_192, 16, b"his key")))

    assert before == other.of("nobody", SHA_256) == one.of("nobody", SHA_256)
    assert before.salt != one.of("somebody", SHA_256).salt


def test_users_that_are_gone_are_not_imitated() -> None:
    decoys = DecoyCredentials(b"secret")
    users = stored(credential("alice", 4_096, 16), credential("bob", 8_192, 24))
    decoys.on_credentials(users)

    decoys.on_credentials(users.drop(("alice", SHA_256)))

    assert {decoys.of(f"x{number}", SHA_256).iterations for number in range(50)} == {8_192}

"""Credentials of users that do not exist."""

from collections import Counter

from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import ScramCredential, ScramMechanism
from penstock.core.metadata.image import PersistentMap
from penstock.security.decoys import Credentials, DecoyCredentials

SHA_256 = ScramMechanism.SCRAM_SHA_256


def credential(user: str, iterations: int, salt_bytes: int, server_key: bytes = b"k") -> ScramCredential:
    return ScramCredential(user, SHA_256, bytes(salt_bytes), iterations, b"s", server_key)


def image(*credentials: ScramCredential, secret: bytes = b"the cluster's") -> MetadataImage:
    found: Credentials = PersistentMap()
    for each in credentials:
        found = found.put((each.user, each.mechanism), each)
    return MetadataImage(credentials=found, delegation_secret=secret)


def test_they_look_like_the_users_there_are() -> None:
    decoys = DecoyCredentials(b"secret")
    decoys.on_metadata(
        image(*(credential(f"u{number}", 8_192 if number % 4 else 4_096, 24) for number in range(40)))
    )

    made = Counter(
        (decoy.iterations, len(decoy.salt)) for decoy in (decoys.of(f"x{n}", SHA_256) for n in range(1_000))
    )

    assert made.keys() == {(8_192, 24), (4_096, 24)}
    assert 150 < made[4_096, 24] < 350


def test_every_node_makes_the_same_ones_and_other_users_change_nothing() -> None:
    one, other = DecoyCredentials(b"one"), DecoyCredentials(b"other")
    one.on_metadata(image(credential("alice", 8_192, 16, b"her key")))
    before = one.of("nobody", SHA_256)

    for decoys in (one, other):
        decoys.on_metadata(image(credential("alice", 8_192, 16, b"changed"), credential("bob", 8_192, 16)))

    assert before == other.of("nobody", SHA_256) == one.of("nobody", SHA_256)
    assert before.salt != one.of("somebody", SHA_256).salt


def test_nothing_that_users_know_tells_what_they_look_like() -> None:
    alice = credential("alice", 8_192, 16, b"her key")

    def salt(secret: bytes) -> bytes:
        decoys = DecoyCredentials(b"of the node")
        decoys.on_metadata(image(alice, secret=secret))
        return decoys.of("nobody", SHA_256).salt

    # All but the secret is the same.
    assert salt(b"one") == salt(b"one") != salt(b"another")
    assert salt(b"") not in (salt(b"one"), salt(b"another"))


def test_a_node_has_a_secret_of_its_own_until_the_cluster_has_one() -> None:
    users = image(credential("alice", 8_192, 16), secret=b"")
    one, other = DecoyCredentials(b"one"), DecoyCredentials(b"other")
    one.on_metadata(users)
    other.on_metadata(users)

    assert one.of("nobody", SHA_256) != other.of("nobody", SHA_256)


def test_users_that_are_gone_are_not_imitated() -> None:
    decoys = DecoyCredentials(b"secret")
    decoys.on_metadata(image(credential("alice", 4_096, 16), credential("bob", 8_192, 24)))

    decoys.on_metadata(image(credential("bob", 8_192, 24)))

    assert {decoys.of(f"x{number}", SHA_256).iterations for number in range(50)} == {8_192}

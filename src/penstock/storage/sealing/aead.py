"""AES-256-GCM, loaded when it is first used: that takes 20 ms, and most nodes encrypt nothing."""


class NotAuthentic(ValueError):
    """What was to be decrypted is not what was encrypted, or not under this key."""


class Aead:
    """A cipher with one key. `encrypt` takes a nonce, the content and what the tag covers besides it."""

    __slots__ = ("_decrypt", "_invalid", "encrypt")

    def __init__(self, secret: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        cipher = AESGCM(secret)
        self.encrypt = cipher.encrypt
        self._decrypt = cipher.decrypt
        self._invalid = InvalidTag

    def decrypt(self, nonce: bytes | memoryview, content: bytes | memoryview, associated: bytes) -> bytes:
        """Raises NotAuthentic."""
        try:
            return self._decrypt(nonce, content, associated)
        except (self._invalid, ValueError):
            raise NotAuthentic from None

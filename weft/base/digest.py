"""The digest of data: what names what depends on it alone, on disk and among kernels."""

from __future__ import annotations

try:  # what hashlib gives, without its time to load: a first compile waits for it, and a saved model
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b


def digest(data: bytes | memoryview, key: bytes = b"") -> bytes:
    """32 bytes that nothing else has; with a key of up to 64 bytes, nothing else with that key.

    >>> from weft.base.digest import digest
    >>> digest(b"weft") == digest(b"weft"), digest(b"weft") == digest(b"warp"), len(digest(b""))
    (True, False, 32)
    """
    return blake2b(data, digest_size=32, key=key).digest()

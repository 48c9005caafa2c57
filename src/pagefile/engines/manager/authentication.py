"""How both sides of a connection prove that they know the key, without saying it.

Each gives the other 32 random bytes and answers with HMAC-SHA256 over both, under
a name of its own, so that neither answer can be used again or turned around.
"""

from __future__ import annotations

import hmac
import secrets

from pagefile.engines.manager.protocol import Hello, Proof

NONCE_BYTES = 32
CLIENT_BYTES = 16


def new_key() -> bytes:
    """A key that nobody guesses, of letters that need no quoting in a URL."""
    return secrets.token_urlsafe(32).encode()


def client_digest(key: bytes, hello: Hello, nonce: bytes, client: bytes, space: str) -> bytes:
    """What only a client with the key can say after this hello."""
    return _digest(key, b"client", hello.nonce, hello.instance, nonce, client, space.encode())


def server_digest(key: bytes, hello: Hello, nonce: bytes) -> bytes:
    """What only a manager with the key can say to this client."""
    return _digest(key, b"server", hello.nonce, hello.instance, nonce)


def is_proved(key: bytes, hello: Hello, proof: Proof) -> bool:
    """Whether the client knows the key; takes the same time whatever it said."""
    right = client_digest(key, hello, proof.nonce, proof.client, proof.space)
    sizes = (len(proof.nonce), len(proof.client))
    return hmac.compare_digest(right, proof.digest) and sizes == (NONCE_BYTES, CLIENT_BYTES)


def _digest(key: bytes, *parts: bytes) -> bytes:
    # Each part's length goes with it: what is moved from one to the next is another text.
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(key, text, "sha256")

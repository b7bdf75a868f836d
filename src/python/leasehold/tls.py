"""TLS of a client, as libleasehold has it: PEM files that may be replaced at any time."""
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TLS:
    ca_file: str | None = None  # the authorities that may sign the server's certificate; None: those of the system
    cert_file: str | None = None  # what is shown to the server, the chain behind it
    key_file: str | None = None  # its private key, without a passphrase
    server_name: str | None = None  # that the server's certificate must be for; None: the address's host

    def stamp(self) -> tuple[Any, ...]:
        """Differs when one of the files does."""
        files = [os.stat(each) for each in (self.ca_file, self.cert_file, self.key_file) if each is not None]
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in files)

    def credentials(self) -> tuple[Any, list[tuple[str, Any]]]:
        """What gRPC takes, and the options of the channel."""
        import grpc

        def read(path: str | None) -> bytes | None:
            if path is None:
                return None
            with open(path, "rb") as file:
                return file.read()

        made = grpc.ssl_channel_credentials(read(self.ca_file), read(self.key_file), read(self.cert_file))
        return made, [("grpc.ssl_target_name_override", self.server_name)] if self.server_name else []


def from_environment() -> TLS | None:
    """LEASEHOLD_CA, LEASEHOLD_CERT and LEASEHOLD_SERVER_NAME: each of them means TLS, unless LEASEHOLD_TLS=no. LEASEHOLD_TLS_KEY is the
    private key, or LEASEHOLD_KEY beside LEASEHOLD_CERT: commands of `leasehold run` have the key of their lease in LEASEHOLD_KEY."""
    ca, cert, key, name = (os.environ.get("LEASEHOLD_" + name) for name in ("CA", "CERT", "TLS_KEY", "SERVER_NAME"))
    if cert and not key:
        key = os.environ.get("LEASEHOLD_KEY")
    values = [ca, cert, key, name]
    wanted = os.environ.get("LEASEHOLD_TLS")
    return TLS(*values) if wanted == "yes" or (wanted != "no" and any(values)) else None

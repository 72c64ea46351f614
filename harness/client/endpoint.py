"""Where a server is: a URL taken apart once, with one sentence for each way it can be wrong."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from harness.targets.target import TargetUnusable


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Scheme, host, port and the path before ``/v1`` of an OpenAI-compatible server."""

    host: str
    port: int
    tls: bool
    base_path: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL with or without its scheme and its ``/v1``. Raises TargetUnusable."""
        if not url.strip():
            raise TargetUnusable("the URL is empty: give one such as http://host:8000")
        if not url.isprintable() or " " in url:
            raise TargetUnusable(f"{url!r}: a URL holds no spaces and no control characters")
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
        except ValueError as error:
            raise TargetUnusable(f"{url}: not a URL: {error}") from None
        if parts.scheme not in ("http", "https"):
            raise TargetUnusable(f"{url}: the URL must begin with http:// or https://")
        try:
            port = parts.port
        except ValueError:
            raise TargetUnusable(f"{url}: the port is not a number from 1 to 65535") from None
        if not parts.hostname:
            raise TargetUnusable(f"{url}: the URL names no host")
        if not (parts.hostname + parts.path).isascii():
            raise TargetUnusable(f"{url}: write the URL in ASCII: punycode hosts, %-escaped paths")
        tls = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if tls else 80), tls, path)

    def path(self, name: str) -> str:
        """The request target of an API path such as ``/v1/models``."""
        return self.base_path + name

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.tls else 80
        return host if self.port == default else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL, without ``/v1`` or a slash at the end."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.base_path}"

    def ssl_context(self, *, verify: bool = True) -> ssl.SSLContext | None:
        """The TLS settings, or None for plain HTTP."""
        if not self.tls:
            return None
        context = ssl.create_default_context()
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

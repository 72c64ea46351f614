"""Where the server listens: on this machine only, unless a key is asked for."""

from __future__ import annotations

import socket

import pytest

from reference_engine.server.limits import Limits
from reference_engine.server.serving import Listen, ServingRefused


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_loopback_needs_no_key(host: str) -> None:
    with Listen(host, 0).bind() as listening:
        assert listening.getsockname()[1] > 0


@pytest.mark.parametrize("host", ["0.0.0.0", "", "example.org", "192.0.2.1"])
def test_any_other_address_needs_a_key(host: str) -> None:
    with pytest.raises(ServingRefused, match="needs --api-key"):
        Listen(host, 0).bind()


def test_with_a_key_any_address_is_fine() -> None:
    with Listen("0.0.0.0", 0, api_key="sesame").bind() as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


def test_the_key_is_not_shown() -> None:
    assert "sesame" not in repr(Listen(api_key="sesame"))


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServingRefused, match=f"cannot listen on 127.0.0.1:{port}"):
            Listen(port=port).bind()


def test_limits_are_above_zero() -> None:
    with pytest.raises(ValueError, match="drain_s must be above 0"):
        Limits(drain_s=0)

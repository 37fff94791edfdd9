"""The HTTP pages."""

import urllib.error
import urllib.request

import pytest

from cuzkd.errors import InvalidInput, Unavailable
from cuzkd.service import listen
from cuzkd.service.http import HttpPages


def broken():
    raise RuntimeError("secret 123")


PAGES = {
    "/metrics": lambda: ("text/plain; version=0.0.4", b"up 1\n"),
    "/status": lambda: ("application/json", b"{}"),
    "/broken": broken,
}


def get(pages, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{pages.address.port}{path}", timeout=5) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def test_pages():
    with HttpPages(listen.parse("127.0.0.1:0"), PAGES) as pages:
        assert get(pages, "/metrics") == (200, "text/plain; version=0.0.4", b"up 1\n")
        assert get(pages, "/status?x=1")[0::2] == (200, b"{}")
        assert get(pages, "/../etc/passwd")[0] == 404
        code, _, body = get(pages, "/broken")
        assert code == 503 and b"123" not in body
        assert get(pages, "/metrics")[0] == 200


def test_others_see_numbers_only():
    with HttpPages(listen.Address(host="0.0.0.0", port=0), PAGES) as pages:
        assert get(pages, "/metrics")[0] == 200
        assert get(pages, "/status")[0] == 404


def test_a_taken_port():
    with (
        HttpPages(listen.parse("127.0.0.1:0"), PAGES) as pages,
        pytest.raises(Unavailable, match="cannot serve metrics"),
    ):
        HttpPages(pages.address, PAGES)


def test_a_socket_is_no_place_for_http(tmp_path):
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        HttpPages(listen.parse(f"unix://{tmp_path}/x"), PAGES)

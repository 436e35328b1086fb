"""Addresses: a key is checked against the host that is connected to."""

import pytest

from compaction_app.providers.addresses import OWN, checked_base_url, is_loopback, origin_of
from sessions_app.sessionlog.errors import BadInput


@pytest.mark.parametrize(
    ("typed", "kept", "origin"),
    [
        ("https://API.OpenAI.com:443/v1/", "https://api.openai.com/v1", "https://api.openai.com"),
        (" http://localhost:11434/v1 ", "http://localhost:11434/v1", "http://localhost:11434"),
        ("http://h:80//", "http://h", "http://h"),
        ("https://h:80/a/../b", "https://h:80/b", "https://h:80"),
        ("http://bücher.example/x", "http://xn--bcher-kva.example/x", "http://xn--bcher-kva.example"),
        ("http://[0:0::1]:8080/v1", "http://[::1]:8080/v1", "http://[::1]:8080"),
        ("https://h/ä b", "https://h/%C3%A4%20b", "https://h"),
        ("https://api.openai.com./v1", "https://api.openai.com./v1", "https://api.openai.com."),
    ],
)
def test_an_address_is_kept_in_one_form(typed, kept, origin):
    assert (checked_base_url(typed), checked_base_url(kept)) == (kept, kept)
    assert origin_of(typed) == origin_of(kept) == origin


INVALID = [
    "", "h", "//h/v1", "ftp://h", "file:///etc/passwd", "javascript:alert(1)", "http://", "https://user:sk-secret@h/v1",
    "https://good.com\\@evil.com/", "https://good.com%5C@evil.com/", "https://h?key=sk-secret", "https://h/v1?",
    "https://h#sk-secret", "https://h:0", "https://h:99999", "https://h:80:90", "https://h:x", "https://ex ample.com",
    "https://exa\nmple.com", "https://%61pi.com", "https://ⓐpi.com", "https://-h", "https://a..b",
    "https://" + "a" * 64 + ".com", "http://[fe80::1%25eth0]/", "http://[::1", "https://h\0/", "sk-secret",
]  # fmt: skip


def test_an_invalid_address_is_refused_and_not_quoted():
    for typed in INVALID:
        with pytest.raises(BadInput) as caught:
            checked_base_url(typed)
        assert caught.value.code == "bad_base_url", typed
        assert "secret" not in str(caught.value)
        assert "evil" not in str(caught.value)


def test_this_machine_is_known_and_what_only_looks_local_or_is_an_own_address_is_another():
    """The latter may resolve to this machine, but a key is not sent there over plain http."""
    local = "localhost LOCALHOST:1/v1 127.0.0.1 127.9.9.9:1 [::1]:1"
    assert [one for one in local.split() if not is_loopback(f"http://{one}")] == []
    names, numbers = ("localhost. localhost.example.com 127.0.0.1.example.com", "0.0.0.0 127.1 2130706433 10.0.0.1")
    other = f"{names} {numbers} [::ffff:127.0.0.1]"
    assert [one for one in other.split() if is_loopback(f"http://{one}")] == []
    assert [checked_base_url(url) for _, url in OWN.values()] == [url for _, url in OWN.values()]
    assert not any(is_loopback(url) or url.startswith("http:") for _, url in OWN.values())

"""The webhook's URL, read strictly (R2.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.errors import ConfigError
from dexaflow.hooks.url import Endpoint, endpoint_from_config, parse_webhook_url


@pytest.mark.parametrize(
    ("url", "endpoint", "authority"),
    [
        (
            "https://admission.policy.svc:8443/admit",
            Endpoint("https", "admission.policy.svc", 8443, "/admit"),
            "admission.policy.svc:8443",
        ),
        ("https://a.test", Endpoint("https", "a.test", 443, "/"), "a.test"),
        ("https://a.test:443/", Endpoint("https", "a.test", 443, "/"), "a.test"),
        ("https://a.test?x=1", Endpoint("https", "a.test", 443, "/?x=1"), "a.test"),
        ("HTTPS://A.Test/Admit?Q=%2F", Endpoint("https", "a.test", 443, "/Admit?Q=%2F"), "a.test"),
        ("https://a.test./x", Endpoint("https", "a.test.", 443, "/x"), "a.test."),
        ("https://my_service:1/", Endpoint("https", "my_service", 1, "/"), "my_service:1"),
        ("https://bücher.example/", Endpoint("https", "xn--bcher-kva.example", 443, "/"), "xn--bcher-kva.example"),
        ("https://BÜCHER.example/", Endpoint("https", "xn--bcher-kva.example", 443, "/"), "xn--bcher-kva.example"),
        ("https://faß.example/", Endpoint("https", "xn--fa-hia.example", 443, "/"), "xn--fa-hia.example"),
        (
            "https://xn--bcher-kva.example/",
            Endpoint("https", "xn--bcher-kva.example", 443, "/"),
            "xn--bcher-kva.example",
        ),
        ("https://10.0.0.1:8443/", Endpoint("https", "10.0.0.1", 8443, "/"), "10.0.0.1:8443"),
        ("https://[2001:DB8:0::1]:8443/", Endpoint("https", "2001:db8::1", 8443, "/"), "[2001:db8::1]:8443"),
        ("http://localhost:8080/x", Endpoint("http", "localhost", 8080, "/x"), "localhost:8080"),
        ("http://LOCALHOST/", Endpoint("http", "localhost", 80, "/"), "localhost"),
        ("http://127.0.0.1/", Endpoint("http", "127.0.0.1", 80, "/"), "127.0.0.1"),
        ("http://127.255.1.2/", Endpoint("http", "127.255.1.2", 80, "/"), "127.255.1.2"),
        ("http://[::1]:80/", Endpoint("http", "::1", 80, "/"), "[::1]"),
        ("http://[0:0:0:0:0:0:0:1]/", Endpoint("http", "::1", 80, "/"), "[::1]"),
    ],
)
def test_good_url_is_read_into_its_parts(url: str, endpoint: Endpoint, authority: str) -> None:
    read = parse_webhook_url(url)
    assert read == endpoint
    assert read.authority == authority
    assert read.loopback_only is (read.scheme == "http")
    assert read.server_name == read.host.removesuffix(".")


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0x7f000001",
        "0X7F.0.0.1",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "127.0.0.256",
        "127.0.0.0x",
        "localhost.",
        "localhost.evil.test",
        "evil.localhost",
        "localhost.localdomain",
        "127.0.0.1.evil.test",
        "127-0-0-1.test",
        "localhostx",
        "xlocalhost",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[::]",
        "0.0.0.0",
        "0",
        "10.0.0.1",
        "128.0.0.1",
        "126.255.255.255",
        "[fe80::1%25lo]",
        "[fe80::1%lo]",
        "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3",  # circled letters that spell localhost
        "\uff11\uff12\uff17.0.0.1",  # full-width digits
        "127\u30020\u30020\u30021",  # ideographic full stops
        "localhost%00.evil.test",
        "%6cocalhost",
        "local\u00adhost",  # a soft hyphen
    ],
)
def test_unencrypted_questions_never_leave_this_machine(host: str) -> None:
    """Only the plain spellings of loopback; what a resolver might take for it, or for something else, is refused."""
    with pytest.raises(ValueError, match=r"host|loopback|characters|blanks"):
        parse_webhook_url(f"http://{host}/")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "empty"),
        ("admission.policy.svc/admit", "form"),
        ("//admission.policy.svc/admit", "form"),
        ("https:/a.test/", "form"),
        ("https:a.test", "form"),
        ("ftp://a.test/", "scheme"),
        ("unix:///run/x.sock", "scheme"),
        ("https+unix://a/", "scheme"),
        ("https:///admit", "no host"),
        ("https://:443/", "no host"),
        ("https://user:pa55word@a.test/", "user info"),
        ("https://pa55word@a.test/", "user info"),
        ("https://@a.test/", "user info"),
        ("https://a.test@evil.test/", "user info"),
        ("https://a.test/#pa55word", "fragment"),
        ("https://a.test/#", "fragment"),
        ("https://a.test\\@evil.test/", "backslash"),
        (" https://a.test/", "blanks"),
        ("https://a.test/\n", "blanks"),
        ("https://a.test/x y", "blanks"),
        ("https://a\t.test/", "blanks"),
        ("https://a.test/\r\nX: y", "blanks"),
        ("https://a.test/\x00", "blanks"),
        ("https://a.test/\u2028", "blanks"),
        ("https://a.test:/", "port"),
        ("https://a.test:0/", "port"),
        ("https://a.test:65536/", "port"),
        ("https://a.test:99999999999999999999/", "port"),
        ("https://a.test:-1/", "port"),
        ("https://a.test:+1/", "port"),
        ("https://a.test:0443/", "port"),
        ("https://a.test:https/", "port"),
        ("https://a.test:\u0664\u0664\u0663/", "port"),
        ("https://a.test:1:2/", "port"),
        ("https://::1/", "cannot be read|no host|port"),
        ("https://[::1/", "cannot be read"),
        ("https://::1]/", "cannot be read|no host|port"),
        ("https://[::1]x/", "cannot be read"),
        ("https://[a.test]/", "IPv6"),
        ("https://[]/", "IPv6"),
        ("https://[::g]/", "IPv6"),
        ("https://[fe80::1%25eth0]/", "zone|IPv6"),
        ("https://a..test/", "host name"),
        ("https://.a.test/", "host name"),
        ("https://a.test../", "host name"),
        ("https://./", "host name"),
        ("https://-a.test/", "host name"),
        ("https://a-.test/", "host name"),
        ("https://a,b.test/", "host name"),
        ("https://a%20b.test/", "host name"),
        ("https://*.test/", "host name"),
        (f"https://{'a' * 64}.test/", "host name"),
        (f"https://{'a.' * 130}test/", "host name"),
        ("https://a.test/ü", "percent-encoded"),
        ("https://a.test/%", "percent-encoded"),
        ("https://a.test/%zz", "percent-encoded"),
        ("https://a.test/<x>", "percent-encoded"),
        ('https://a.test/?q="x"', "percent-encoded"),
        ("https://a.test/[x]", "percent-encoded"),
        ("https://a.test/" + "x" * 5000, "4096"),
    ],
)
def test_bad_url_is_refused_and_none_of_it_is_quoted(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_webhook_url(url)
    with pytest.raises(ConfigError) as refused:
        endpoint_from_config(url)
    assert refused.value.key == "execution.admission.webhook.url"
    for text in (str(caught.value), str(refused.value)):
        assert "\n" not in text
        assert "pa55word" not in text
        assert "evil" not in text


@given(st.text(alphabet=st.sampled_from("https:/@[]?#.%0127ax\\ \n-_ü"), max_size=40) | st.text(max_size=40))
def test_whatever_is_read_makes_a_request_line_of_its_own(url: str) -> None:
    """Nothing that was read can break the request, and unencrypted means loopback."""
    for text in (url, f"http://{url}", f"https://{url}"):
        try:
            endpoint = parse_webhook_url(text)
        except ValueError:
            continue
        head = f"POST {endpoint.target} HTTP/1.1\r\nHost: {endpoint.authority}"
        assert head.isascii()
        assert len(head.split("\r\n")) == 2
        assert head.split("\r\n")[0].count(" ") == 2
        assert endpoint.target.startswith("/")
        assert 0 < endpoint.port < 65536
        if endpoint.scheme == "http":
            assert endpoint.host in ("localhost", "::1") or endpoint.host.startswith("127.")


def test_log_shows_neither_path_nor_query() -> None:
    assert str(parse_webhook_url("https://[::2]:1/hidden?token=x")) == "https://[::2]:1"


def test_an_endpoint_shown_does_not_show_its_path_or_query() -> None:
    """Both may hold what nobody should read in a log."""
    endpoint = parse_webhook_url("https://policy.test/s3cret/admit?code=s3cret")

    assert "policy.test" in repr(endpoint)
    assert "s3cret" not in f"{endpoint} {endpoint!r}"

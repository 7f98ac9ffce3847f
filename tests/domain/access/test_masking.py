"""Secrets are known by name or by declaration, and are blotted out wherever they are shown."""

from __future__ import annotations

import pytest

from holdfast.domain.access.masking import (
    MASK,
    is_secret,
    mask_cut,
    mask_json,
    mask_text,
    mask_url,
    mask_value,
    secret_values,
)


@pytest.mark.parametrize(
    "name",
    ["password", "DB_PASSWORD", "apiKey", "api_key", "X-Api-Key", "accessToken", "client_secret", "Authorization"],
)
def test_names_that_hold_secrets(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", ["to", "author", "token_count", "max_tokens_limit", "secretary", "key", "monkey", ""])
def test_names_that_do_not(name):
    assert not is_secret(name)


def test_a_kind_may_declare_more():
    assert is_secret("iban", ("iban",))
    assert mask_value({"iban": "DE02", "to": 1}, ("iban",)) == {"iban": MASK, "to": 1}


def test_secrets_are_masked_at_any_depth():
    """Names of keys count, in objects and lists; what is empty or a switch may be seen."""
    value = {"db": {"password": "hunter22"}, "all": [{"token": 1}], "secret": None, "password": False, "pwd": ""}
    assert mask_value(value) == {
        "db": {"password": MASK},
        "all": [{"token": MASK}],
        "secret": None,
        "password": False,
        "pwd": "",
    }


def test_options_of_commands():
    """The word after --password, and what stands behind an equals sign."""
    argv = ["mysql", "--password", "hunter22", "--token=abc", "-v"]
    assert mask_value({"argv": argv}) == {"argv": ["mysql", "--password", MASK, f"--token={MASK}", "-v"]}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["mysql", "-phunter"], ["mysql", f"-p{MASK}"]),
        (["/usr/bin/mysqldump", "-p1234567", "shop"], ["/usr/bin/mysqldump", f"-p{MASK}", "shop"]),
        (["load", "-pHunter22"], ["load", f"-p{MASK}"]),
        (["curl", "-u", "ada:hunter22", "x"], ["curl", "-u", f"ada:{MASK}", "x"]),
        (["curl", "--user=ada:hunter22"], ["curl", f"--user=ada:{MASK}"]),
        (["sh", "-c", "curl -u 'ada:hunter22' x"], ["sh", "-c", f"curl -u 'ada:{MASK}' x"]),
        (["sh", "-c", "mysql shop -phunter < x"], ["sh", "-c", f"mysql shop -p{MASK} < x"]),
        (["sshpass", "-p", "hunter22", "ssh", "-p", "2222"], ["sshpass", "-p", MASK, "ssh", "-p", "2222"]),
        (["redis-cli", "-p", "6379", "-a", "hunter22"], ["redis-cli", "-p", "6379", "-a", MASK]),
        (["openssl", "rsa", "-passin", "pass:hunter22"], ["openssl", "rsa", "-passin", f"pass:{MASK}"]),
        (["sh", "-c", "sshpass -p hunter22 ssh -p 2222 h"], ["sh", "-c", f"sshpass -p {MASK} ssh -p 2222 h"]),
        (["sh", "-c", "redis-cli -p 6379 -a hunter22 get x"], ["sh", "-c", f"redis-cli -p 6379 -a {MASK} get x"]),
        (["sh", "-c", "openssl rsa -passin pass:hunter22"], ["sh", "-c", f"openssl rsa -passin pass:{MASK}"]),
        (["openssl", "rsa", "-passin", "file:key.txt"], ["openssl", "rsa", "-passin", "file:key.txt"]),
        (["ls", "-a", "folder", "pass:3"], ["ls", "-a", "folder", "pass:3"]),
        (["find", ".", "-print"], ["find", ".", "-print"]),
        (["docker", "run", "-p8080:80", "-u", "1000:1000"], ["docker", "run", "-p8080:80", "-u", "1000:1000"]),
        (["mkdir", "-p/tmp/some/folder", "-u", "ada"], ["mkdir", "-p/tmp/some/folder", "-u", "ada"]),
    ],
)
def test_short_options_with_a_password(words, shown):
    """E1.1: -pSECRET, -u name:SECRET, sshpass -p SECRET. What was masked once is masked in logs, too."""
    assert mask_value(words) == shown
    assert mask_value(shown) == shown
    (hidden,) = secret_values(words) or [MASK]
    assert hidden in {"hunter", "1234567", "Hunter22", "hunter22", MASK}


def test_keys_of_objects_are_masked():
    """E1.1: a result or a checkpoint may have a secret of the payload as a key."""
    assert mask_value({"hunter22": {"at hunter22": 1}}, values=["hunter22"]) == {MASK: {f"at {MASK}": 1}}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("login failed: password=hunter22, user=ada", f"login failed: password={MASK}, user=ada"),
        ('{"api_key": "abc123"}', f'{{"api_key": "{MASK}"}}'),
        ("postgresql://ada:hunter22@db/x", f"postgresql://ada:{MASK}@db/x"),
        ("Authorization: Bearer abcdefgh.ijk", f"Authorization: Bearer {MASK}"),
        ("run --token abc now", f"run --token {MASK} now"),
        ("clone https://ghp_0123456789abcdef@host/x", f"clone https://{MASK}@host/x"),
        ("clone https://ada@host/x", "clone https://ada@host/x"),
        ("nothing to see", "nothing to see"),
    ],
)
def test_texts_with_a_secret(text, shown):
    assert mask_text(text) == shown
    assert mask_text(shown) == shown


def test_values_of_secrets_are_blotted_out_of_texts():
    """As they are, as in JSON, and as in a URL; the longest first, so that no half is left."""
    payload = {"password": 'a"b/c d', "token": 'a"b/c d-longer', "pin": 7, "key": "seen"}
    values = secret_values(payload)
    text = 'x a"b/c d y a\\"b/c d z a%22b%2Fc%20d a"b/c d-longer 7 seen'
    assert mask_text(text, values) == f"x {MASK} y {MASK} z {MASK} {MASK} 7 seen"


def test_json_that_is_none_is_a_text():
    assert mask_json("token=abc {") == f"token={MASK} {{"
    assert mask_json(None) is None
    assert mask_json('{"token": "abc"}') == {"token": MASK}


def test_a_hostile_text_takes_no_time():
    for text in (
        "password" * 20_000,
        "://a:" * 40_000,
        "bearer " * 40_000,
        "--token " * 40_000,
        "mysql " * 40_000,
        "-u a:" * 40_000,
    ):
        assert mask_text(text)


def test_the_fence_of_a_lease_is_no_secret():
    """History tells the number of a token; a token that somebody has made is longer, or no number."""
    assert mask_text('{"token":17}') == '{"token":17}'
    assert mask_text("token=s3cret") == "token=***"
    assert mask_text("token: 1234567890123") == "token: ***"


def deep(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


def test_values_nested_too_deeply_are_masked_whole():
    """A payload of many levels takes down nobody who looks at it; secrets in it are known all the same."""
    assert mask_value(deep(100)) == deep(100)
    shown, levels = mask_value(deep(900)), 0
    while isinstance(shown, list):
        shown, levels = shown[0], levels + 1
    assert (shown, levels) == (MASK, 100)
    assert mask_json("[" * 50_000 + "]" * 50_000) == MASK
    assert secret_values({"password": deep(900), "other": ["hunter22", deep(5_000)]}) == []
    assert secret_values({"a": [[{"password": "hunter22"}]]}) == ["hunter22"]


def test_a_cut_shows_no_half_of_a_secret():
    """Neither its beginning before the cut, nor its end after it; three characters may be seen."""
    values = secret_values({"password": "hunter22-and-more"})
    for size in range(4, 17):
        beginning, rest = "hunter22-and-more"[:size], "hunter22-and-more"[-size:]
        assert mask_cut("x" * 300 + beginning, values) == "x" * 300 + MASK
        assert mask_cut(f"it said {beginning}…{rest} at last", values) == f"it said {MASK}…{MASK} at last"
    assert mask_cut("a whole hunter22", values) == "a whole hunter22"
    assert mask_cut("x" * 300 + "hunter22-and-more", values) == "x" * 300 + MASK


def test_a_secret_that_begins_as_it_ends_is_masked_whole():
    values = secret_values({"password": "abcdabcd"})
    assert mask_cut("x" * 300 + "abcdabcd", values) == "x" * 300 + MASK


def test_a_cut_url_shows_no_password():
    assert mask_cut("x" * 300 + " postgresql://ada:hunt").endswith(f"postgresql://ada:{MASK}")
    assert mask_cut("x" * 300 + " http://db:5432").endswith("http://db:5432")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://db", "https://db"),
        ("https://db:8080/", "https://db:8080"),
        ("https://ada:hunter22@db/x?a=1&b=2#c", f"https://{MASK}@db/{MASK}"),
        ("https://pings.example/hunter22", f"https://pings.example/{MASK}"),
        ("https://db?hunter22", f"https://db/{MASK}"),
    ],
)
def test_a_url_is_shown_without_user_path_and_query(url, shown):
    """E1.1: services put tokens into the path."""
    assert mask_url(url) == shown


def test_a_short_secret_is_masked_as_a_whole_word():
    values = secret_values({"pin": "123", "cvv": 7, "token": "  "})
    assert mask_text("pin 123 of 1234, 7 times (123)", values) == f"pin {MASK} of 1234, 7 times ({MASK})"

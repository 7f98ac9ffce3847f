"""Commands: places, grids, masks, and what fits a host."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.commands.command import (
    Command,
    check_placeholders,
    command_payload,
    environment,
    grid,
    host_capacity,
    load_command,
    mask_variables,
    masked_payload,
    parameter_values,
    placeholders,
    secret_variables,
    substitute,
    sweep_key,
)
from holdfast.errors import InvalidInput

values = st.text(max_size=30)


def test_a_grid_is_every_combination():
    rows = list(grid({"a": ["1", "2"], "b": ["x", "y"]}))
    assert rows == [{"a": a, "b": b} for a in "12" for b in "xy"]


@given(values, values)
def test_a_value_stays_within_its_word(one, other):
    """Whatever it holds: braces and the names of other places too."""
    assert substitute(["run", "{a}", "--b={b}", "{{a}}"], {"a": one, "b": other}) == ("run", one, f"--b={other}", "{a}")


def test_places_and_parameters_are_the_same():
    assert placeholders(["{a}", "x{b}y{a}", "{{c}}", "{}", "{1}"]) == ["a", "b"]
    check_placeholders(["{a}"], ["a"])
    with pytest.raises(InvalidInput, match="no parameter for"):
        check_placeholders(["{a}"], [])
    with pytest.raises(InvalidInput, match="not used"):
        check_placeholders(["a"], ["a"])


@given(st.dictionaries(st.sampled_from("abc"), values, min_size=1), st.dictionaries(st.sampled_from("abc"), values))
def test_no_two_sets_of_parameters_share_a_key(one, other):
    assert (sweep_key("x", ["a"], one) == sweep_key("x", ["a"], other)) == (list(one.items()) == list(other.items()))
    assert sweep_key("x", ["a"], one) != sweep_key("x", ["b"], one)


@pytest.mark.parametrize(
    "words", [["sh", "-c", "echo {a}"], ["/bin/bash", "-ec", "{a}"], ["env", "X=1", "zsh", "-c", "x {a}"]]
)
def test_no_shell_reads_the_value_of_a_placeholder(words):
    with pytest.raises(InvalidInput, match="the shell would interpret"):
        check_placeholders(words, ["a"])
    check_placeholders(["sh", "-c", 'echo "$1"', "-", "{a}"], ["a"])


@pytest.mark.parametrize(
    "name", ["API_KEY", "DB_PASSWORD", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "SSH_PRIVATE", "key"]
)
def test_secrets_are_not_shown(name):
    assert mask_variables({name: "x"}) == {name: "***"}


@pytest.mark.parametrize("name", ["PATH", "LANG", "TZ", "HOME", "OMP_NUM_THREADS"])
def test_a_known_few_variables_are_shown(name):
    """E1.1: of all others the value is masked, whatever they are called."""
    assert mask_variables({name: "x", "RATE": "0.1"}) == {name: "x", "RATE": "***"}


@pytest.mark.parametrize(
    ("env", "hidden"),
    [
        ({"STRIPE_SK": "sk_live_12345"}, ["sk_live_12345"]),
        ({"RATE": "0.1234"}, ["0.1234"]),
        ({"RATE": "0.123"}, []),
        ({"API_TOKEN": "0.123"}, ["0.123"]),
        ({"PATH": "/usr/bin", "NODE_ENV": "production", "LANG": "C.UTF-8"}, []),
    ],
)
def test_values_of_variables_are_masked_everywhere(env, hidden):
    """W4: from six characters on, whatever the variable is called."""
    masked = secret_variables(Command(argv=("true",), cwd="/", env=env).dumps())
    assert masked == hidden, "I21 is broken: views differ in what is secret"


def test_a_payload_is_shown_without_its_secrets():
    command = Command(argv=("true",), cwd="/", env={"TOKEN": "x", "TZ": "UTC"})
    assert load_command(masked_payload("command", command.dumps())).env == {"TOKEN": "***", "TZ": "UTC"}
    assert masked_payload("mail", "{}") == "{}"
    assert masked_payload("command", "[]") == "[]"


def test_stored_variables_override_those_of_the_worker():
    command = Command(argv=("true",), cwd="/", env={"HOME": "/mine"}, parameters={"year": "2020"})
    env = environment(command, {"HOME": "/theirs", "USER": "u", "SECRET": "s"}, job_id=7, label=None)
    assert env == {"HOME": "/mine", "USER": "u", "HOLDFAST_PARAM_year": "2020", "HOLDFAST_JOB_ID": "7"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("a\0b",)},
        {"env": {"": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"A B": "x"}},
        {"env": {"HOLDFAST_JOB_ID": "x"}},
        {"env": {"A": "\0"}},
        {"timeout": timedelta(0)},
        {"cpus": 0.0},
        {"cpus": 0.001},
    ],
)
def test_invalid_commands_are_refused(wrong):
    with pytest.raises(InvalidInput):
        Command(**{"argv": ("true",), "cwd": "/", **wrong})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("2019..2022", ["2019", "2020", "2021", "2022"]),
        ("1..1", ["1"]),
        ("08..11", ["08", "09", "10", "11"]),
        ("-1..1", ["-1", "0", "1"]),
        ("A,1..3,2,A", ["A", "1", "2", "3"]),
        ("..", [".."]),
        ("../data,a/..,a/../b", ["../data", "a/..", "a/../b"]),
        ("1...3", ["1...3"]),
        ("", [""]),
        ("5..1", None),
        ("1..100001", None),
        ("1..999999999999999999", None),
        ("a..c", None),
        ("0.1..0.5", None),
        ("2020-01-01..2020-01-31", None),
    ],
)
def test_a_range_of_a_parameter_is_its_whole_numbers(text, values):
    """Y50: it was one literal value, so that a sweep over four years was one job."""
    if values is None:
        with pytest.raises(InvalidInput):
            parameter_values("year", text)
    else:
        assert parameter_values("year", text) == values


def test_commands_fit_eighty_percent_of_a_host():
    assert host_capacity(100, 10, 10, 1.0) == (8, "memory")
    assert host_capacity(1000, 10, 10, 2.0) == (4, "cores")
    assert host_capacity(1000, 1.5, 10, 0.25) == (4, "cores")
    assert host_capacity(100, 10, 10, 1.0, used=15) == (8, "memory")
    assert host_capacity(100, 10, 10, 1.0, used=45) == (5, "memory")
    assert host_capacity(100, 10, 10, 1.0, used=101) == (0, "memory")
    with pytest.raises(InvalidInput):
        host_capacity(100, 10, 0, 1.0)


def test_people_write_the_stop_delay_of_a_payload_as_a_duration():
    payload = command_payload({"argv": ["true"], "cwd": "/", "timeout": "PT2H", "stop_delay": "1m"})
    assert (payload["timeout"], payload["stop_delay"]) == ("PT2H", "PT60S")


@pytest.mark.parametrize(("timeout", "kept"), [("10m", "PT600S"), (90, "PT90S"), ("PT2H", "PT2H"), (None, None)])
def test_people_write_the_timeout_of_a_payload_as_a_duration(timeout, kept):
    assert command_payload({"argv": ["true"], "timeout": timeout}) == {"argv": ["true"], "timeout": kept}


def test_a_payload_without_a_timeout_stays_as_it_is():
    assert command_payload({"argv": ["true"]}) == {"argv": ["true"]}

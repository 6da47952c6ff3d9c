"""Options from text: values, the environment, and what wins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from streamsan import config
from streamsan.config import Settings
from streamsan.errors import UsageError
from streamsan.session import parse_count, parse_memory, parse_schedule


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 << 30),
        ("16gb", 16 << 30),
        ("1.5 G", 3 << 29),
        ("512M", 512 << 20),
        ("2048K", 2 << 20),
        ("1048576", 1 << 20),
        ("1TiB", 1 << 40),
    ],
)
def test_memory(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "0", "1", "-1G", "1X", "G", "1e9", "999999999T", "٣G"])
def test_no_memory(text: str) -> None:
    with pytest.raises(UsageError, match="no size"):
        parse_memory(text)


@pytest.mark.parametrize("text", ["program", "late", "hold:side", "hold:a:b", "random:7"])
def test_schedules(text: str) -> None:
    assert parse_schedule(text) == text


@pytest.mark.parametrize("text", ["", "fast", "late:1", "hold", "hold:", "random", "random:x"])
def test_no_schedules(text: str) -> None:
    with pytest.raises(UsageError, match="choose from program"):
        parse_schedule(text)


@pytest.mark.parametrize("text", ["0", "65", "x", "-1", "1.5", "", "9" * 5000])
def test_no_counts(text: str) -> None:
    with pytest.raises(UsageError, match="no number of devices"):
        parse_count(text)


@pytest.mark.parametrize("text", ["", "0", "off", "False"])
def test_environment_off(text: str) -> None:
    assert config.from_environment({"STREAMSAN": text}) is None


def test_environment_unset() -> None:
    assert config.from_environment({}) is None


def test_environment_on() -> None:
    assert config.from_environment({"STREAMSAN": "1"}) == Settings()


def test_environment_with_options() -> None:
    text = "device=virtual, schedule=hold:side,output=r.json,fail-fast,strict=0,memory=2G,"
    assert config.from_environment({"STREAMSAN": text}) == Settings(
        device="virtual",
        schedule="hold:side",
        output=Path("r.json"),
        fail_fast=True,
        memory=2 << 30,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour=red", "no option 'colour'"),
        ("device", "gives device no value"),
        ("strict=maybe", "switch strict"),
        ("format=xml", "no report format 'xml'"),
        ("trace=", "file name is empty"),
    ],
)
def test_bad_environment(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config.from_environment({"STREAMSAN": text})


def test_flags_win_over_the_environment() -> None:
    parser = argparse.ArgumentParser()
    config.add_options(parser, config.RECORDING, "options")
    given = parser.parse_args(["--devices", "3"])
    merged = config.merge({"STREAMSAN": "devices=2,device=cuda"}, given)
    assert (merged.devices, merged.device) == (3, "cuda")

"""Promises of the time zone of pages: the one of this computer, however that is set; UTC if it cannot be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from redline.local_zone import local_zone


@pytest.mark.parametrize(
    ("named", "zone"),
    [
        ("Asia/Tokyo", "Asia/Tokyo"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        ("<+03>-3", "UTC"),
        ("../../etc/passwd", "UTC"),
    ],
)
def test_the_environment_names_the_zone(named: str, zone: str, tmp_path: Path) -> None:
    assert local_zone({"TZ": named}, tmp_path / "missing") == zone


def test_otherwise_the_computer_is_set_to_it(tmp_path: Path) -> None:
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert local_zone({}, link) == "Asia/Tokyo"
    copied = tmp_path / "copied"
    copied.write_bytes(b"TZif")
    assert local_zone({"TZ": ""}, copied) == "UTC"

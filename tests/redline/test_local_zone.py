"""Promises of the time zone of pages: the one of this computer, however that is set; UTC if it cannot be named."""

from redline.local_zone import local_zone


def test_the_environment_names_the_zone(tmp_path):
    zones = {"Asia/Tokyo": "Asia/Tokyo", ":Asia/Tokyo": "Asia/Tokyo", "<+03>-3": "UTC", "../../etc/passwd": "UTC"}
    assert {named: local_zone({"TZ": named}, tmp_path / "missing") for named in zones} == zones


def test_otherwise_the_computer_is_set_to_it(tmp_path):
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert local_zone({}, link) == "Asia/Tokyo"
    copied = tmp_path / "copied"
    copied.write_bytes(b"TZif")
    assert local_zone({"TZ": ""}, copied) == "UTC"

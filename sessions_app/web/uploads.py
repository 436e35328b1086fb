"""Uploads of any length: stored as files in the data directory, so that they can be moved into place without a copy."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from django.conf import settings
from django.core.files.uploadedfile import TemporaryUploadedFile, UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, SkipFile
from django.http import HttpResponse

from sessions_app.disk.files import os_failure, reported
from sessions_app.sessionlog.errors import RedlineError

NO_ROOM: Final = "redline.no_room"
"""The key in the request's META for the reason why an upload could not be stored."""
SPARE: Final = 100_000_000
"""Bytes of disk space that an upload must leave free."""
ABANDONED_SECONDS: Final = 86_400
UPLOADS: Final = "uploads"

View = TypeVar("View", bound=Callable[..., HttpResponse])


def takes_uploads(view: View) -> View:
    """Mark a view whose forms upload files: its requests may be as long as disk space allows."""
    view.takes_uploads = True  # type: ignore[attr-defined]
    return view


def is_for_uploads(view: object) -> bool:
    """Whether the view is marked by `takes_uploads`."""
    return getattr(view, "takes_uploads", False)


def upload_room() -> int:
    """The maximum size of an upload in bytes: the request is stored as received, and its files in addition."""
    free = shutil.disk_usage(settings.REDLINE_DATA_DIR).free
    return max(0, free - SPARE) // 2


class StoredUpload(TemporaryUploadedFile):
    """An upload in a private file, which is deleted when it is closed."""

    def __init__(self, file: IO[bytes], name: str | None, content_type: str | None, charset: str | None) -> None:
        UploadedFile.__init__(self, file, name, content_type, 0, charset)


class SpaciousUpload(FileUploadHandler):
    """Stores uploads in the data directory while there is room; if there is not, they are skipped and reported."""

    upload: StoredUpload | None = None

    def handle_raw_input(
        self,
        input_data: IO[bytes],
        META: dict[str, Any],  # noqa: N803  # the name is Django's
        content_length: int,
        boundary: str,
        encoding: str | None = None,
    ) -> None:
        del input_data, boundary, encoding
        self._meta = META
        try:
            free = shutil.disk_usage(upload_directory()).free
        except RedlineError as fault:
            self._meta[NO_ROOM] = fault.message
            return
        if content_length > free - SPARE:
            META[NO_ROOM] = (
                f"The upload has {content_length:,} bytes, but the disk of {settings.REDLINE_DATA_DIR} has only "
                f"{free:,} left. Nothing was stored. Free some space, then try again."
            )

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.upload = None
        if NO_ROOM in self._meta:
            raise SkipFile
        with self._skipping():
            file = tempfile.NamedTemporaryFile(dir=settings.REDLINE_DATA_DIR / UPLOADS, suffix=".upload")  # noqa: SIM115
        self.upload = StoredUpload(file, self.file_name, self.content_type, self.charset)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        del start
        assert self.upload is not None  # noqa: S101  # new_file made it
        with self._skipping():
            self.upload.write(raw_data)

    def file_complete(self, file_size: int) -> StoredUpload | None:
        if self.upload is not None:
            with contextlib.suppress(SkipFile), self._skipping():
                self.upload.seek(0)  # this flushes the buffer
                self.upload.size = file_size
        stored, self.upload = self.upload, None
        return stored

    @contextlib.contextmanager
    def _skipping(self) -> Iterator[None]:
        """Report an upload that cannot be stored, and skip it. Raises SkipFile."""
        try:
            yield
        except OSError as fault:
            failure = os_failure(fault, settings.REDLINE_DATA_DIR / UPLOADS, "The upload was not stored.")
            self._meta[NO_ROOM] = failure.message
            self.upload_interrupted()
            raise SkipFile from fault

    def upload_interrupted(self) -> None:
        if self.upload is not None:
            # Closing flushes the buffer, which may not fit either; the file is deleted nevertheless.
            with contextlib.suppress(OSError):
                self.upload.close()
            self.upload = None


def upload_directory() -> Path:
    """The directory of unprocessed uploads. Files older than a day, left by a killed server, are removed.

    Raises SystemFailure.
    """
    directory: Path = settings.REDLINE_DATA_DIR / UPLOADS
    with reported(directory, "The upload was not stored."):
        directory.mkdir(mode=0o700, exist_ok=True)
        for abandoned in directory.glob("*.upload"):
            if abandoned.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                abandoned.unlink(missing_ok=True)
    return directory

"""What attachments add to a conversation, and what is shown of images and documents in the place of their data.

    {"attachment": {"type": "file", "filename", "displayPath", "content": {"type": "image", "file": {"base64", …}}},
     "rendered": [{"content": text}, …], "renderedRole"}

Newer versions record an attachment as they rendered it. Otherwise it adds what its content has, and words of the
client's that are not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.image_size import ImageSize, size_in_base64
from sessions_app.sessionlog.jsjson import stringify, utf16_length
from sessions_app.sessionlog.opaque import IMAGE_UNITS, Opaque, bytes_of, document_units

SNAPSHOT: Final = "prompt_snapshot"
"""The attachment that is not part of the conversation."""
REMINDER: Final = "todo_reminder"
"""The attachment of which nothing is sent unless it was rendered."""
QUEUED: Final = "queued_command"
FILES: Final = ("file", "directory", "nested_memory")
"""The attachments of what is in the project."""
_CONTENTS: Final = ("prompt", "content", "snippet")
"""The fields of an attachment that have what it adds."""
_NAMES: Final = ("displayPath", "filename", "path", "name")
_MEDIA: Final = ("image", "document")
_DATA: Final = frozenset({"base64", "data", "blob"})
"""The fields that have data as Base64."""
NAME_CHARACTERS: Final = 200
LEVELS: Final = 20
"""How deep data is looked for in a value: those that are recorded are nested by hundreds only to do harm."""


class Media(NamedTuple):
    """What is shown of an image or a document, and its estimate in UTF-16 units."""

    label: str
    units: int
    is_text: bool = False
    size: ImageSize | None = None

    def opaque(self, block: int | None = None) -> tuple[Opaque, ...]:
        """What of it is not text, in this block or in an attachment."""
        return () if self.is_text else (Opaque(self.units, block, self.label, self.size),)


def media_of(block: object) -> Media | None:
    """An image or a document, given as a content block; None for any other block. A document may be a text."""
    if not isinstance(block, dict) or block.get("type") not in _MEDIA:
        return None
    source, name = fields.mapping(block, "source"), fields.text(block, "title")[:NAME_CHARACTERS]
    data = fields.text(source, "data")
    if source.get("type") == "text":
        return Media("\n".join(filter(None, (name, data))), utf16_length(data), is_text=True)
    kind = fields.text(source, "media_type")[:NAME_CHARACTERS] or str(block["type"])
    is_image = block["type"] == "image"
    size = f"{bytes_of(data):,} bytes" if data else ""
    where = fields.text(source, "url" if source.get("url") else "file_id")[:NAME_CHARACTERS]
    label = f"[{', '.join(filter(None, (name, kind, size, where)))}]"
    return Media(label, IMAGE_UNITS, size=size_in_base64(data)) if is_image else Media(label, document_units(data))


def rendered_texts(data: Mapping[str, Any]) -> Sequence[str] | None:
    """The texts of an attachment as the client rendered them; None if the line has none, as in older versions."""
    if not isinstance(data.get("rendered"), list):
        return None
    contents = (one.get("content") for one in fields.objects(data, "rendered"))
    return [one for one in contents if isinstance(one, str)]


def shown_text(data: Mapping[str, Any]) -> str:
    """What is shown of the attachment on a line: as it was rendered, else its name and what it adds; empty if it adds
    nothing that is recorded, or is that of a file without the file, which the client does not send."""
    texts, attachment = rendered_texts(data), fields.mapping(data, "attachment")
    if attachment.get("type") == "file" and not attachment.get("content"):
        return ""
    if texts is not None:
        return "\n\n".join(texts)
    text, images = unrendered_text(attachment), images_of(attachment)
    labels = [media.label for media in map(media_of, images) if media is not None]
    name = next((name for field in _NAMES if (name := fields.text(attachment, field))), "")[:NAME_CHARACTERS]
    return "\n".join(filter(None, (name, text, *labels))) if text or labels else ""


def unrendered_text(attachment: Mapping[str, Any]) -> str:
    """The text that an attachment adds, without the client's words; empty if it adds none that is recorded."""
    if attachment.get("type") == REMINDER:
        return ""
    value = next((value for name in _CONTENTS if (value := attachment.get(name))), "")
    value = fields.as_mapping(value).get("contents", value)  # those of a resource
    if isinstance(value, list):
        texts = [block.get("text") if isinstance(block, dict) else block for block in value if not media_of(block)]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    file = fields.mapping(fields.as_mapping(value), "file")
    if isinstance(file.get("content"), str):
        return str(file["content"])
    if "base64" in file:
        return fields.text(file, "filePath")
    return value if isinstance(value, str) else stringify(_without_data(value))


def images_of(attachment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The images that an attachment adds, as content blocks."""
    found = [block for block in fields.items(attachment, "prompt") if media_of(block)]
    content = fields.mapping(attachment, "content")
    file = fields.mapping(content, "file")
    if content.get("type") == "image" and isinstance(file.get("base64"), str):
        source = {"type": "base64", "data": file["base64"], "media_type": fields.text(file, "type")}
        found.append({"type": "image", "source": source})
    return found


def _without_data(value: Any, levels: int = LEVELS) -> Any:
    """A recorded value with the size of its data in the place of the data, down to this many levels."""
    if levels == 0:
        return value
    if isinstance(value, list):
        return [_without_data(one, levels - 1) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: f"[{bytes_of(one):,} bytes]" if name in _DATA and isinstance(one, str) else _without_data(one, levels - 1)
        for name, one in value.items()
    }

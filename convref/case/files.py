"""Files of lines that may come from anywhere: a device or a pipe need not end."""

from pathlib import Path

from ..errors import invalid


def read_text(where: str, path: Path, most: int) -> str:
    """Return the text of a file of at most `most` bytes; errors begin with `where`."""
    try:
        with path.open("rb") as file:
            found = file.read(most + 1)
        if len(found) > most:
            raise invalid(where, f"{path} is too large, needs at most {most >> 20} MiB")
        return found.decode("utf-8")
    except OSError as error:
        raise invalid(where, f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise invalid(where, f"{path} is not text in UTF-8: {error}") from None

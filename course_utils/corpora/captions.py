"""Multi30k, task 1: 29,000 captions of photographs, in English and German, written and translated by people.

Elliott, Frank, Sima'an and Specia (2016), "Multi30K: Multilingual English-German Image Descriptions". The captions
come from Flickr30k and may be used for research and education, not commercially; so they are never part of the course's
files but downloaded from the dataset's own repository, once.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tqdm.auto import tqdm

from course_utils.text import Corpus

COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
ADDRESS = f"https://raw.githubusercontent.com/multi30k/dataset/{COMMIT}/data/task1/raw"
SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}
MIRROR = "COURSE_DATA"  # an environment variable: a folder that holds the files already


class CorpusMissing(RuntimeError):
    """The corpus is not here and could not be fetched; the text says what to do."""

    def _render_traceback_(self) -> list[str]:
        return [f"CorpusMissing: {self}"]


def multi30k() -> Corpus:
    """The corpus: from the folder that COURSE_DATA names, else from the cache, else downloaded (1.3 MB).

    Raises:
        CorpusMissing: there is no network, or a file is not what it should be.
    """
    folder = _mirror() or _download_all(_cache())
    splits = ("train", "val", "test_2016_flickr")
    return Corpus(*((_lines(folder / f"{split}.en.gz"), _lines(folder / f"{split}.de.gz")) for split in splits))


def _mirror() -> Path | None:
    named = os.environ.get(MIRROR)
    if not named:
        return None
    folder = Path(named).expanduser()
    for place in (folder, folder / "multi30k", folder / "task1" / "raw", folder / "data" / "task1" / "raw"):
        if all((place / name).is_file() for name in SHA256):
            for name in SHA256:
                if not _is_right(place / name):
                    raise CorpusMissing(f"{place / name} is not the file of the dataset: its sha256 differs.")
            return place
    raise CorpusMissing(f"{MIRROR} names {folder}, and the files {', '.join(SHA256)} are not there.")


def _cache() -> Path:
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "attention-workbook" / "multi30k"


def _is_right(file: Path) -> bool:
    return hashlib.sha256(file.read_bytes()).hexdigest() == SHA256[file.name]


def _download_all(folder: Path, address: str = ADDRESS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHA256:
        if not (folder / name).is_file() or not _is_right(folder / name):
            _download(f"{address}/{name}", folder / name)
    return folder


def _download(address: str, file: Path) -> None:
    """Into ``file.part``, going on where an earlier try stopped; it gets its name when the sha256 is right."""
    part = file.with_name(f"{file.name}.part")
    try:
        _fetch(address, part)
    except (urllib.error.URLError, OSError) as error:
        raise CorpusMissing(
            f"{file.name} could not be downloaded ({getattr(error, 'reason', error)}). Check the network and run this "
            f"again: it goes on where it stopped. With the files at hand, name their folder in {MIRROR}. "
            "Without them, corpora.number_task() needs no network."
        ) from None
    if hashlib.sha256(part.read_bytes()).hexdigest() != SHA256[file.name]:
        part.unlink()
        raise CorpusMissing(f"{file.name} arrived damaged and was deleted. Run this again to download it anew.")
    os.replace(part, file)


def _fetch(address: str, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # "range not satisfiable": it is all there already
            raise
        return
    with response:
        resumed = response.status == 206
        size = int(response.headers.get("Content-Length") or 0) + (have if resumed else 0)
        with (
            part.open("ab" if resumed else "wb") as out,
            tqdm(total=size or None, initial=have if resumed else 0, unit="B", unit_scale=True, desc=part.stem) as bar,
        ):
            while chunk := response.read(1 << 16):
                out.write(chunk)
                bar.update(len(chunk))


def _lines(file: Path) -> list[str]:
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.strip() for line in lines]

"""The downloaded corpus, its subwords, and the translator: fetched once, checked, gone on with, and never required."""

import contextlib
import gzip
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from course_utils import corpora, translation
from course_utils.corpora import captions as corpus
from course_utils.text import Corpus

SHARED = Path(__file__).parents[2] / "shared" / "data" / "multi30k"
needs_the_files = pytest.mark.skipif(not SHARED.is_dir(), reason="the real Multi30k files are not beside the project")

ENGLISH = ["A dog runs.", "Two dogs run.", "A cat sleeps."] * 30
GERMAN = ["Ein Hund rennt.", "Zwei Hunde rennen.", "Eine Katze schläft."] * 30


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the dataset's folder, with sums of its own."""
    folder = tmp_path / "origin"
    folder.mkdir()
    for name in corpus.SHA256:
        lines = ENGLISH if ".en." in name else GERMAN
        (folder / name).write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in corpus.SHA256}
    monkeypatch.setattr(corpus, "SHA256", sums)
    monkeypatch.delenv(corpus.MIRROR, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus, "_cache", lambda: tmp_path / "cache")
    return folder


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves ranges, and notes what was asked for."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        data = (Path(self.directory) / self.path.lstrip("/")).read_bytes()
        wanted = self.headers.get("Range")
        self.asked.append((self.path.lstrip("/"), wanted))
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:])

    def log_message(self, *_args: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    asked: list[tuple[str, str | None]] = []
    kind = type("Handler", (Server,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: kind(*a, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def test_it_is_downloaded_once_and_then_read_from_the_cache(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(files) as (address, asked):
        monkeypatch.setattr(corpus, "_download_all", _with_address(corpus._download_all, address))
        first = corpora.multi30k()
        assert len(asked) == len(corpus.SHA256)
        assert corpora.multi30k() == first
        assert len(asked) == len(corpus.SHA256)
    assert first.train == (ENGLISH, GERMAN)
    assert not list((tmp_path / "cache").glob("*.part"))


def _with_address(download_all, address: str):
    return lambda folder: download_all(folder, address)


def test_an_interrupted_download_goes_on_where_it_stopped(files: Path, tmp_path: Path) -> None:
    name = "train.de.gz"
    whole = (files / name).read_bytes()
    (tmp_path / f"{name}.part").write_bytes(whole[:20])
    with served(files) as (address, asked):
        corpus._download(f"{address}/{name}", tmp_path / name)
    assert asked == [(name, "bytes=20-")]
    assert (tmp_path / name).read_bytes() == whole


def test_a_download_that_was_complete_but_not_renamed_is_used(files: Path, tmp_path: Path) -> None:
    name = "val.en.gz"
    (tmp_path / f"{name}.part").write_bytes((files / name).read_bytes())
    with served(files) as (address, _):
        corpus._download(f"{address}/{name}", tmp_path / name)
    assert (tmp_path / name).exists()


def test_a_damaged_download_is_deleted_and_said(files: Path, tmp_path: Path) -> None:
    name = "val.en.gz"
    with served(files) as (address, _):
        (files / name).write_bytes(b"something else")
        with pytest.raises(corpora.CorpusMissing, match="arrived damaged"):
            corpus._download(f"{address}/{name}", tmp_path / name)
    assert not list(tmp_path.glob("val*"))


def test_without_a_network_the_offline_task_is_named(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = "http://127.0.0.1:9"  # the discard port: refused at once
    monkeypatch.setattr(corpus, "_download_all", _with_address(corpus._download_all, nobody))
    with pytest.raises(corpora.CorpusMissing, match="number_task") as caught:
        corpora.multi30k()
    assert "COURSE_DATA" in str(caught.value)
    assert caught.value._render_traceback_() == [f"CorpusMissing: {caught.value}"]


def test_a_mirror_is_read_and_checked(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(corpus.MIRROR, str(files))
    assert corpora.multi30k().val == (ENGLISH, GERMAN)
    (files / "val.de.gz").write_bytes(gzip.compress(b"x\n"))
    with pytest.raises(corpora.CorpusMissing, match="sha256 differs"):
        corpora.multi30k()
    monkeypatch.setenv(corpus.MIRROR, str(files / "nowhere"))
    with pytest.raises(corpora.CorpusMissing, match="are not there"):
        corpora.multi30k()


@needs_the_files
def test_the_real_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(corpus.MIRROR, str(SHARED))
    data = corpora.multi30k()
    assert [(len(en), len(de)) for en, de in (data.train, data.val, data.test)] == [
        (29_000, 29_000),
        (1_014, 1_014),
        (1_000, 1_000),
    ]
    assert data.train[1][0] == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."


# --- subwords --------------------------------------------------------------------------------------------------------


def test_subwords_come_back_as_the_sentence() -> None:
    subwords = corpora.Subwords.learn([*ENGLISH, *GERMAN], size=80)
    for sentence in (ENGLISH[1], GERMAN[2], "Two cats sleep."):
        assert subwords.sentence(subwords.pieces(sentence)) == sentence
    assert subwords.vocabulary.tokens[:4] == ["<pad>", "<bos>", "<eos>", "<unk>"]
    again = corpora.Subwords(subwords.to_json())
    assert again.pieces(GERMAN[1]) == subwords.pieces(GERMAN[1])
    assert again.vocabulary.tokens == subwords.vocabulary.tokens


def test_frequent_words_are_whole_and_rare_ones_in_pieces() -> None:
    subwords = corpora.Subwords.learn([*ENGLISH, *GERMAN], size=80)
    assert "▁dog" in subwords.pieces("A dog runs.")
    assert len(subwords.pieces("Katzenhund")) > 2


# --- the translator --------------------------------------------------------------------------------------------------

TINY = translation.Settings(
    d_model=32, h=2, d_ff=64, N=1, dropout=0.0, subwords=90, budget=200, steps=150, rate=5e-3, warmup=20
)
CORPUS = Corpus((ENGLISH, GERMAN), (ENGLISH[:3], GERMAN[:3]), (ENGLISH[:3], GERMAN[:3]))


def test_from_sentences_to_bleu_and_back_from_the_file(tmp_path: Path) -> None:
    translator, score = translation.run(CORPUS, tmp_path, TINY, every=50)
    assert translator.translate(ENGLISH[:3]) == GERMAN[:3]
    assert score is not None
    assert score.cased == pytest.approx(100)
    assert "tok:13a" in score.signatures[0]
    assert "case:lc" in score.signatures[1]
    loaded = translation.Translator.load(tmp_path / "translator.pt")
    assert loaded.translate(ENGLISH[:3]) == GERMAN[:3]
    assert loaded.settings == TINY
    assert (tmp_path / "result.json").exists()
    best = loaded.hypotheses(ENGLISH[0], beam=3)
    assert best[0][0] == GERMAN[0]
    assert [h.score for _, h in best] == sorted((h.score for _, h in best), reverse=True)
    weights, source, target = loaded.attention(ENGLISH[0], GERMAN[0])
    assert weights["cross"][0].shape == (1, 2, len(target), len(source))
    torch.testing.assert_close(weights["cross"][0].sum(dim=-1), torch.ones(1, 2, len(target)))


def test_bleu_is_sacrebleus() -> None:
    import sacrebleu

    said, right = ["Ein Hund rennt schnell."], ["Ein Hund rennt."]
    assert translation.bleu(said, right).cased == pytest.approx(sacrebleu.corpus_bleu(said, [right]).score)
    assert translation.bleu(["ein hund rennt weit weg."], ["Ein Hund rennt weit weg."]).lowercased == pytest.approx(100)


# --- the checkpoint that comes with the course -----------------------------------------------------------------------


def test_the_shipped_translator_is_small_and_translates() -> None:
    assert translation.SHIPPED.stat().st_size < 12e6
    shipped = translation.Translator.load()
    assert shipped.translate(["Two dogs run through the snow."]) == ["Zwei Hunde laufen durch den Schnee."]
    log = [json.loads(line) for line in (translation.SHIPPED.parent / "log.jsonl").read_text().splitlines()]
    result = json.loads((translation.SHIPPED.parent / "result.json").read_text())
    assert translation.Settings(**result["settings"]) == shipped.settings
    assert log[-1]["step"] == shipped.settings.steps


@needs_the_files
@pytest.mark.slow
def test_the_shipped_translator_has_the_bleu_it_is_said_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(corpus.MIRROR, str(SHARED))
    english, german = corpora.multi30k().test
    result = json.loads((translation.SHIPPED.parent / "result.json").read_text())["test_2016_flickr"]
    score = translation.bleu(translation.Translator.load().translate(english), german)
    assert score.cased == pytest.approx(result["cased"], abs=0.3)
    assert score.cased > 35

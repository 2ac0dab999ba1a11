"""The real run: the Transformer on Multi30k, English to German, from sentences to BLEU.

The size is that of Wu et al. (2021), "Good for Misconceived Reasons: An Empirical Revisiting on the Need for Visual
Context in Multimodal Machine Translation", section 4.1: small, since the corpus is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from course_utils.corpora import Subwords
from course_utils.decoding import Hypothesis, beam_search
from course_utils.models.transformer import Transformer, Weights
from course_utils.text import BOS, Corpus, TokenBatches, make_batch, pad
from course_utils.training import (
    Checkpoints,
    History,
    Processes,
    average,
    choose_device,
    fit,
    inverse_root,
    label_smoothed_loss,
    seed_everything,
    sequence_loss,
    write_atomically,
)

SHIPPED = Path(__file__).parent / "trained" / "multi30k-en-de.pt"


@dataclass(frozen=True)
class Settings:
    """A model's size, and how it is trained."""

    d_model: int = 128
    h: int = 4
    d_ff: int = 256
    N: int = 4
    dropout: float = 0.3
    norm_first: bool = False
    subwords: int = 10_000
    budget: int = 4_096  # tokens a batch, a side
    steps: int = 8_000
    rate: float = 5e-3
    warmup: int = 2_000
    epsilon: float = 0.1  # label smoothing


# For lesson 09's number sentences, in seconds on a CPU.
SMALL = Settings(
    d_model=64, h=4, d_ff=128, N=2, dropout=0.0, subwords=150, budget=1_024, steps=400, rate=3e-3, warmup=100
)


@dataclass(frozen=True)
class Bleu:
    """sacrebleu's scores, 0 to 100, of the text as it is and of its lower-cased form, with their signatures."""

    cased: float
    lowercased: float
    signatures: tuple[str, str]

    def __str__(self) -> str:
        return (
            f"BLEU {self.cased:.1f} cased, {self.lowercased:.1f} lower-cased\n"
            f"{self.signatures[0]}\n{self.signatures[1]}"
        )


def bleu(translations: Sequence[str], references: Sequence[str]) -> Bleu:
    """Corpus BLEU (Papineni et al. 2002) by sacrebleu, tokenisation 13a (Post 2018)."""
    from sacrebleu.metrics import BLEU

    metrics = [BLEU(tokenize="13a", lowercase=lower) for lower in (False, True)]
    cased, lower = (metric.corpus_score(list(translations), [list(references)]).score for metric in metrics)
    return Bleu(cased, lower, tuple(str(metric.get_signature()) for metric in metrics))


class Translator:
    """A Transformer with its subwords: sentences in, sentences out."""

    def __init__(self, subwords: Subwords, settings: Settings) -> None:
        self.subwords, self.settings = subwords, settings
        size = len(subwords.vocabulary)
        s = settings
        self.model = Transformer(size, size, s.d_model, s.h, s.d_ff, s.N, s.dropout, s.norm_first, tied="all")

    @classmethod
    def load(cls, file: Path | str = SHIPPED) -> Translator:
        """What ``save`` wrote; without a file, the checkpoint that comes with the course."""
        saved = torch.load(file, map_location="cpu", weights_only=True)
        translator = cls(Subwords(saved["subwords"]), Settings(**saved["settings"]))
        translator.model.load_state_dict({name: value.float() for name, value in saved["model"].items()})
        translator.model.eval()
        return translator

    def save(self, file: Path | str) -> None:
        """Weights in half precision; a table that layers share is stored once."""
        state = {name: value.detach().cpu() for name, value in self.model.state_dict().items()}
        halves: dict[int, torch.Tensor] = {}
        for value in state.values():
            halves.setdefault(value.data_ptr(), value.half())
        saved = {
            "model": {name: halves[value.data_ptr()] for name, value in state.items()},
            "subwords": self.subwords.to_json(),
            "settings": asdict(self.settings),
        }
        write_atomically(Path(file), partial(torch.save, saved))

    def ids(self, sentences: Sequence[str]) -> torch.Tensor:
        """(B, S) ids of the sentences' pieces, on the model's device."""
        rows = [self.subwords.vocabulary.encode(self.subwords.pieces(sentence)) for sentence in sentences]
        return pad(rows).to(next(self.model.parameters()).device)

    def text(self, ids: Sequence[int]) -> str:
        return self.subwords.sentence(self.subwords.vocabulary.decode(ids))

    def hypotheses(self, sentence: str, beam: int = 5, alpha: float = 0.6) -> list[tuple[str, Hypothesis]]:
        """The beam's translations of one sentence, the best first."""
        source = self.ids([sentence])
        (found,) = beam_search(self.model, source, beam, alpha, _longest(source))
        return [(self.text(h.tokens), h) for h in found]

    def translate(self, sentences: Sequence[str], beam: int = 5, alpha: float = 0.6, rows: int = 100) -> list[str]:
        """The best translations, in the order of the sentences."""
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        translated: dict[int, str] = {}
        for start in range(0, len(order), rows):
            some = order[start : start + rows]
            source = self.ids([sentences[i] for i in some])
            found = beam_search(self.model, source, beam, alpha, _longest(source))
            translated.update({i: self.text(best[0].tokens) for i, best in zip(some, found, strict=True)})
        return [translated[i] for i in range(len(sentences))]

    def attention(self, sentence: str, translation: str) -> tuple[Weights, list[str], list[str]]:
        """The weights of every layer and head, with the pieces of both sides; the target's rows start at <bos>."""
        source, target = self.subwords.pieces(sentence), self.subwords.pieces(translation)
        encode = self.subwords.vocabulary.encode
        device = next(self.model.parameters()).device
        inputs = torch.tensor([[BOS, *encode(target)]], device=device)
        weights = self.model.attention_weights(torch.tensor([encode(source)], device=device), inputs)
        return weights, list(source), ["<bos>", *target]


def _longest(source: torch.Tensor) -> int:
    """How many tokens a translation of (B, S) may have."""
    return 2 * source.shape[1] + 10


def train(
    translator: Translator,
    corpus: Corpus,
    *,
    folder: Path | str | None = None,
    every: int = 250,
    processes: Processes | None = None,
    fast: bool = True,
    threads: int | None = None,
    seed: int = 0,
) -> History:
    """Train on the corpus; with a ``folder``, checkpoints go there, and the last ten are averaged at the end."""
    s, vocabulary = translator.settings, translator.subwords.vocabulary
    processes = processes or Processes()
    pairs = translator.subwords.pairs(*corpus.train)
    batches = TokenBatches(pairs, vocabulary, vocabulary, s.budget, seed, (processes.rank, processes.world))
    checkpoints = None
    if folder is not None:
        checkpoints = Checkpoints(folder, every, measure=partial(validation, translator, corpus))
    history = fit(
        translator.model,
        batches,
        s.steps,
        rate=s.rate,
        warmup=s.warmup,
        schedule=inverse_root,
        betas=(0.9, 0.98),
        loss=partial(label_smoothed_loss, epsilon=s.epsilon),
        checkpoints=checkpoints,
        processes=processes,
        fast=fast,
        threads=threads,
        label="translator",
    )
    if checkpoints is not None and len(history.losses) == s.steps:
        translator.model.load_state_dict(average(checkpoints.files))
    return history


@torch.no_grad()
def validation(translator: Translator, corpus: Corpus) -> dict[str, Any]:
    """Loss a token (nats, without smoothing) on the validation sentences."""
    vocabulary, model = translator.subwords.vocabulary, translator.model
    device = next(model.parameters()).device
    total, count = 0.0, 0
    pairs = sorted(translator.subwords.pairs(*corpus.val), key=lambda p: len(p.source))
    for start in range(0, len(pairs), 100):
        batch = make_batch(pairs[start : start + 100], vocabulary, vocabulary).to(device)
        labels = batch.target[:, 1:]
        tokens = int((labels != 0).sum())
        total += sequence_loss(model(batch.source, batch.target[:, :-1]), labels).item() * tokens
        count += tokens
    return {"validation_loss": round(total / count, 4)}


def run(
    corpus: Corpus, folder: Path, settings: Settings, *, every: int = 250, threads: int | None = None, seed: int = 0
) -> tuple[Translator, Bleu | None]:
    """From nothing to a translator and its test BLEU; under torchrun, one process of several, of which the first tests.

    Stopped and run again with the same folder, it goes on from the last checkpoint there. ``translator.pt`` and
    ``result.json`` are written to the folder at the end; before that there is no BLEU.
    """
    device = choose_device()
    processes = Processes.join(device)
    seed_everything(seed)
    subwords = Subwords.learn([*corpus.train[0], *corpus.train[1]], settings.subwords)
    translator = Translator(subwords, settings)
    translator.model.to(device)
    history = train(translator, corpus, folder=folder, every=every, processes=processes, threads=threads, seed=seed)
    score = None
    if len(history.losses) == settings.steps and processes.first:
        averaged = validation(translator, corpus)["validation_loss"]
        translator.save(folder / "translator.pt")
        score = bleu(translator.translate(corpus.test[0]), corpus.test[1])
        text = json.dumps(
            {"settings": asdict(settings), "validation_loss": averaged, "test_2016_flickr": asdict(score)}, indent=1
        )
        write_atomically(folder / "result.json", lambda path: path.write_text(text + "\n", encoding="utf-8"))
    processes.leave()
    return translator, score

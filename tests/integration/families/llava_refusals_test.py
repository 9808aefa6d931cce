"""llava_refusals_test.py DIT_TRAIN DIT_SAMPLE DIT_EXPORT TOKENIZER_MODEL: what a LLaVA's programs refuse, each with its
exit code and the words that say what to do."""

import json
import struct
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import llava_job  # noqa: E402
import programs  # noqa: E402
from programs import execute, read_safetensors  # noqa: E402

TRAIN, SAMPLE, EXPORT, TOKENIZER = (Path(one).resolve() for one in sys.argv[1:5])
CONFIGURATION, DATA = 2, 4

CONFIG = llava_job.configuration('steps = 1\nout = "run"\n', batch=2)


def png() -> bytes:
    """16x16, grey."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(range(row, row + 16)) for row in range(16))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def dialogue(question: str = "<image>\nwhat is it?", answer: str = "a bag", **more) -> dict:
    turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    return {"id": "a", "image": "0.png", "conversations": turns, **more}


def safetensors(tensors: dict) -> bytes:
    """Of fp32 tensors by name, each (shape, bytes)."""
    header, begin = {}, 0
    for name, (shape, content) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + len(content)]}
        begin += len(content)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(content for _, content in tensors.values())


def field(number: int, content: bytes | int) -> bytes:
    """Of protocol buffers, short."""
    if isinstance(content, int):
        return bytes([number << 3, content]) if number < 16 else bytes([number << 3 & 0x7F | 0x80, number >> 4, content])
    return bytes([number << 3 | 2, len(content)]) + content


def piece(text: bytes, kind: int) -> bytes:
    return field(1, field(1, text) + field(3, kind))


# Unknown, begin and end, the blank and four letters; model type, normalizer without changes.
PIECES = piece(b"<unk>", 2) + piece(b"<s>", 3) + piece(b"</s>", 3)
PIECES += b"".join(piece(text.encode(), 1) for text in ["\u2581", "a", "b", "g", "\n"])
NORMALIZER = field(3, field(4, 0))
BPE, UNIGRAM = field(2, field(3, 2)), field(2, field(3, 1))


class Refusals(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "tokenizer.model").write_bytes(TOKENIZER.read_bytes())
        (self.folder / "0.png").write_bytes(png())
        (self.folder / "llava.toml").write_text(CONFIG)
        self.write([dialogue()] * 4)

    def write(self, dialogues: list, name: str = "list.json") -> None:
        (self.folder / name).write_text(json.dumps(dialogues))

    def train(self, *settings: str):
        words = [word for one in settings for word in ("--set", one)]
        return execute(TRAIN, self.folder, "--config", "llava.toml", "--device", "cpu", *words)

    def assert_refused(self, result, code: int, *words: str) -> None:
        self.assertEqual(result.returncode, code, result.stderr)
        for one in words:
            self.assertIn(one, result.stderr)

    def base(self) -> dict:
        """Weights of a run, which base.safetensors holds too."""
        done = self.train("train.out=first")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = execute(EXPORT, self.folder, "--checkpoint", "first", "--out", "base.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        return read_safetensors(self.folder / "base.safetensors")

    def test_settings(self):
        adapters = ['train.parts=["projector", "lora"]', "llava.lora.r=4"]
        only_projector = 'train.parts=["projector"]'
        for settings, words in (
            (["llava.base=nf4"], ['llava.base = "nf4"', "packs the decoder", 'leave "text" out there']),
            (['train.parts=["text", "lora"]', "llava.lora.r=4"], ["decoder and adapters would learn the same"]),
            ([*adapters, 'llava.lora.targets=["lm_head"]'], ['names "lm_head", which is no matrix', "allowed: q_proj"]),
            ([*adapters, 'llava.lora.targets=["mm_projector"]'], ['names "mm_projector", which is no matrix']),
            ([*adapters, 'llava.lora.targets=["nothing"]'], ['names "nothing", which is no matrix']),
            ([*adapters, "llava.lora.r=33"], ["r = 33 is more than the smallest matrix has rows; set 32 or less"]),
            (['optimizer.rates=["model.none: 1e-5"]'], ["is of no parameter that is trained; the nearest are"]),
            (['optimizer.rates=["model: 1e-5", "model.norm: 1e-4"]'], ["let each parameter have one rate"]),
            (['optimizer.decays="matrices"'], ["has no use with optimizer.weight_decay = 0"]),
            ([only_projector, "policies.checkpoint.enabled=true", 'policies.checkpoint.targets=["model.vision_tower.vision_tower.vision_model.encoder.layers.*"]'],
             ["without a graph"]),
            (['train.parts=["head"]', "policies.checkpoint.enabled=true", 'policies.checkpoint.keep="offload"'],
             ["without a graph"]),
            (["llava.text.vocabulary=300"], ["320 tokens", "llava.text.vocabulary = 300"]),
            (["llava.text.vocabulary=383"], ["320 tokens", "llava.text.vocabulary = 383"]),
            (["llava.text.vocabulary=448"], ["320 tokens", "llava.text.vocabulary = 448"]),
        ):  # fmt: skip
            with self.subTest(settings):
                self.assert_refused(self.train(*settings), CONFIGURATION, *words)

    def test_embeddings_that_are_filled_up_are_those_of_the_tokenizer(self):
        done = self.train("llava.text.vocabulary=384")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.write([{"id": "a", "conversations": [{"from": "human", "value": "what?"}]}], "asked.json")
        done = execute(SAMPLE, self.folder, "--checkpoint", "run", "--ask", "asked.json", "--out", "answers.json")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_dialogues(self):
        turns = [{"from": "gpt", "value": "a"}, {"from": "human", "value": "b"}]
        for number, (one, words) in enumerate((
            (dialogue("what is it?"), ["<image>"]),
            ({"id": "a", "conversations": dialogue()["conversations"]}, ["<image>"]),
            (dialogue(image=None), ['"image" is no name of a file']),
            (dialogue("<image><image> what?"), ["2"]),
            ({"id": "a", "conversations": turns}, ["human"]),
            (dialogue(answer=""), ["answer"]),
            (dialogue("<image>\n" + "what " * 100), ["max_length = 64 cuts all of its answers; raise it"]),
            (dialogue(image="1.png"), ["1.png"]),
        )):  # fmt: skip
            with self.subTest(number):
                self.write([one] * 4)
                self.assert_refused(self.train(), DATA, "list.json", *words)
        for text in ("[", "{}", '[{"id": []}]', "[" * 5000, '[{"id": "a", "id": "b", "conversations": []}]', "[1e999]"):
            with self.subTest(text[:20]):
                (self.folder / "list.json").write_text(text)
                self.assert_refused(self.train(), DATA, "list.json")

    def test_tokenizers(self):
        small = "llava.text.vocabulary=8"
        for content, words in (
            (b"", "no SentencePiece model"),
            (b"\xff" * 40, "no SentencePiece model, or a damaged one"),
            (PIECES[:-3] + BPE + NORMALIZER, "no SentencePiece model"),
            (PIECES + UNIGRAM + NORMALIZER, "no model of byte pair encoding; train one with --model_type=bpe"),
            (PIECES + piece(b"x", 4) + BPE + NORMALIZER, "symbols of its user's"),
            (PIECES + BPE + field(3, field(2, b"map") + field(4, 0)), "changes text before it reads it"),
            (PIECES + piece(b"<0xZZ>", 6) + BPE + NORMALIZER, 'its byte "<0xZZ>" is none'),
            (PIECES[len(piece(b"<unk>", 2)) :] + BPE + NORMALIZER, "without tokens that begin and end a text"),
        ):  # fmt: skip
            with self.subTest(words):
                (self.folder / "tokenizer.model").write_bytes(content)
                self.assert_refused(self.train(small), DATA, "llava.toml:23", "tokenizer.model: ", words)
        (self.folder / "tokenizer.model").unlink()
        self.assert_refused(self.train(small), DATA, "tokenizer.model: no such file; name a SentencePiece model")
        # Letters that it has not, and no bytes in their place.
        (self.folder / "tokenizer.model").write_bytes(PIECES + BPE + NORMALIZER)
        self.assert_refused(self.train(small), DATA, "list.json: sample 0: the tokenizer cannot write \" USER: \" back", "with byte fallback")

    def test_shards(self):
        tensors = self.base()
        names = sorted(tensors)
        index = self.folder / "model.safetensors.index.json"
        start = "train.init_from=model.safetensors.index.json"
        halves = {"1.safetensors": names[::2], "2.safetensors": names[1::2]}

        def write(files: dict, listed: dict) -> None:
            for file, inside in files.items():
                (self.folder / file).write_bytes(safetensors({name: tensors[name] for name in inside}))
            index.write_text(json.dumps({"weight_map": listed}))

        listed = {name: file for file, inside in halves.items() for name in inside}
        write(halves, listed)
        self.assertEqual(self.train(start).returncode, 0)
        first, second = names[:2]
        for files, entries, words in (
            (halves, listed | {"model.more.weight": "3.safetensors"}, 'its shard "3.safetensors" is not there'),
            (halves | {"1.safetensors": [*names[::2], second]}, listed, "lies in"),
            (halves, {name: file for name, file in listed.items() if name != first}, "which the list has not"),
            (halves, listed | {"model.more.weight": "1.safetensors"}, '"1.safetensors" has not "model.more.weight"'),
            (halves, listed | {first: "../1.safetensors"}, "which is no name of a file beside the list"),
            (halves, listed | {first: 3}, "which is no name of a file beside the list"),
            (halves, {}, "no list of shards"),
        ):
            with self.subTest(words):
                write(files, entries)
                self.assert_refused(self.train(start, "train.out=other"), DATA, "train.init_from", words)
        for text in ("[", "[" * 5000, '{"weight_map": {"a": "1", "a": "2"}}', '{"weight_map": [1]}'):
            with self.subTest(text[:20]):
                index.write_text(text)
                self.assert_refused(self.train(start, "train.out=other"), DATA, "train.init_from")

    def test_weights_of_others_and_changed_bases(self):
        tensors = self.base()
        renamed = {name.replace("lm_head", "head"): tensor for name, tensor in tensors.items()}
        (self.folder / "other.safetensors").write_bytes(safetensors(renamed))
        refused = self.train("train.init_from=other.safetensors", "train.out=other")
        self.assert_refused(refused, CONFIGURATION, '"head.weight", which no LLaVA has')
        done = self.train("train.init_from=base.safetensors", 'train.parts=["projector"]')
        self.assertEqual(done.returncode, 0, done.stderr)
        base = self.folder / "base.safetensors"
        base.write_bytes(base.read_bytes()[:-1] + b"\x01")
        for program, arguments in (
            (TRAIN, ["--resume", "run", "--set", "train.steps=2"]),
            (EXPORT, ["--checkpoint", "run", "--out", "whole.safetensors"]),
            (SAMPLE, ["--checkpoint", "run", "--ask", "list.json", "--out", "answers.json"]),
        ):
            with self.subTest(program.name):
                self.assert_refused(execute(program, self.folder, *arguments), CONFIGURATION, "SHA-256 differs")
        base.unlink()
        refused = execute(TRAIN, self.folder, "--resume", "run", "--set", "train.steps=2")
        self.assert_refused(refused, CONFIGURATION, "is not there; put it back where it was, or into ")

    def test_arguments_of_export_and_of_questions(self):
        self.base()
        for arguments, words in (
            (["--pack", "fp4", "--out", "x.safetensors"], "--pack fp4: allowed: nf4 | int8"),
            (["--merge", "--out", "x.safetensors"], "--merge: the "),
            (["--adapter", "x"], "have no adapters"),
            (["--adapter", "x", "--merge"], "--adapter: is written alone; leave --out, --merge and --pack out"),
            (["--adapter", "x", "--pack", "nf4"], "--adapter: is written alone"),
        ):
            with self.subTest(arguments):
                done = execute(EXPORT, self.folder, "--checkpoint", "first", *arguments)
                self.assert_refused(done, CONFIGURATION, words)
        self.assertFalse((self.folder / "x.safetensors").exists())
        question = {"id": "a", "image": "none.png", "conversations": [{"from": "human", "value": "<image>\nwhat?"}]}
        self.write([question], "asked.json")
        ask = ["--checkpoint", "first", "--ask", "asked.json", "--out", "answers.json"]
        self.assert_refused(execute(SAMPLE, self.folder, *ask), DATA, '--ask asked.json: "none.png": no such file')
        self.write([question | {"image": "0.png"}], "asked.json")
        (self.folder / "small.model").write_bytes(PIECES + BPE + NORMALIZER)
        done = execute(SAMPLE, self.folder, *ask, "--tokenizer", "small.model")
        self.assert_refused(done, CONFIGURATION, "has 8 tokens, and the model 320; name its own with --tokenizer")
        done = execute(SAMPLE, self.folder, *ask)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    programs.TRAIN = TRAIN
    unittest.main(argv=sys.argv[:1])

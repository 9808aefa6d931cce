#!/usr/bin/env python3
"""llava_transformers_test.py OUTPUTS DRAW TRAIN EXPORT SAMPLE JUDGE TOKENIZER PLAN: LLaVA against transformers, peft and sentencepiece, live: random small
models under both families of names, whole and in shards, and adapters that a run has trained."""

import json
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

OUTPUTS, DRAW, TRAIN, EXPORT, SAMPLE, JUDGE, TOKENIZER, PLAN = (str(Path(one).resolve()) for one in sys.argv[1:9])
IMAGE = 3  # the id of a picture's tokens; ours go where it stands

CONFIG = """[train]
model = "llava"
steps = 4
threads = 1
parts = {parts}
{more}
[llava]
base = "fp32"
loss_chunk = 7
[llava.vision]
hidden = {vision.hidden_size}
mlp = {vision.intermediate_size}
depth = {vision.num_hidden_layers}
heads = {vision.num_attention_heads}
image = {vision.image_size}
patch = {vision.patch_size}
[llava.text]
hidden = {text.hidden_size}
mlp = {text.intermediate_size}
depth = {text.num_hidden_layers}
heads = {text.num_attention_heads}
vocabulary = {text.vocab_size}
[policies.precision]
enabled = false
"""


def random_model(draw: random.Random, vocabulary: int = 0, image: int = 0) -> LlavaForConditionalGeneration:
    heads, patch = draw.choice([1, 2, 4]), 7
    vision = CLIPVisionConfig(
        hidden_size=8 * heads * draw.choice([1, 2]), intermediate_size=draw.choice([24, 40]), num_attention_heads=heads,
        num_hidden_layers=draw.choice([2, 3, 4]), image_size=image or patch * draw.choice([2, 3]), patch_size=patch,
        projection_dim=16)  # fmt: skip
    text = LlamaConfig(
        hidden_size=16 * heads, intermediate_size=draw.choice([20, 44]), num_attention_heads=heads,
        num_key_value_heads=heads, num_hidden_layers=draw.choice([1, 2, 3]), vocab_size=vocabulary or draw.choice([31, 64]),
        max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False)  # fmt: skip
    torch.manual_seed(draw.randrange(1 << 30))
    model = LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=text, image_token_index=IMAGE))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def config_text(model, parts='["vision", "projector", "text"]', more="") -> str:
    return CONFIG.format(vision=model.config.vision_config, text=model.config.text_config, parts=parts, more=more)


def own_names(weights: dict) -> dict:
    def own(name: str) -> str:
        for theirs, ours in (
            ("model.vision_tower.vision_model.", "model.vision_tower.vision_tower.vision_model."),
            ("model.multi_modal_projector.linear_1.", "model.mm_projector.0."),
            ("model.multi_modal_projector.linear_2.", "model.mm_projector.2."),
            ("model.language_model.", "model."),
        ):
            if name.startswith(theirs):
                return ours + name[len(theirs) :]
        return name

    return {own(name): tensor for name, tensor in weights.items()}


def write_shards(weights: dict, folder: Path) -> Path:
    names = sorted(weights)
    halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, inside in halves.items():
        save_file({name: weights[name] for name in inside}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, inside in halves.items() for name in inside}}))
    return index


def saved(model) -> dict:
    return {name: tensor.detach().clone().contiguous() for name, tensor in model.state_dict().items()}


class LlavaTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def inputs(self, model, draw):
        side = model.config.vision_config.image_size // model.config.vision_config.patch_size
        words = model.config.text_config.vocab_size
        length = side * side + draw.randrange(6, 12)
        ids = torch.randint(4, words, (2, length))
        ids[0, 1 : 1 + side * side] = IMAGE
        pictures = torch.randn(1, 3, model.config.vision_config.image_size, model.config.vision_config.image_size)
        labels = torch.where(torch.rand(2, length) < 0.4, ids, -100)
        labels[ids == IMAGE] = -100
        labels[:, -1] = ids[:, -1]
        labels[:, 0] = -100
        following = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
        rows = (following.flatten() != -100).nonzero().flatten()
        return {
            "ids": torch.where(ids == IMAGE, 0, ids), "pictures": pictures, "label_rows": rows,
            "picture_rows": (ids.flatten() == IMAGE).nonzero().flatten(),
            "labels": following.flatten()[rows], "prompts": torch.randint(4, words, (2, 5)),
        }, ids, labels  # fmt: skip

    def ours(self, model, weights, inputs, *arguments, **more):
        (self.folder / "config.toml").write_text(config_text(model, **more))
        save_file(inputs, self.folder / "in.safetensors")
        command = [OUTPUTS, self.folder / "config.toml", weights, self.folder / "in.safetensors",
                   self.folder / "out.safetensors", *arguments]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return load_file(self.folder / "out.safetensors")

    def test_random_models_give_what_transformers_gives(self):
        draw = random.Random(30)
        for number in range(20):
            with self.subTest(number=number):
                model = random_model(draw)
                inputs, ids, labels = self.inputs(model, draw)
                weights = saved(model)
                if number % 2 == 1:
                    weights = own_names(weights)
                file = self.folder / f"weights-{number}.safetensors"
                save_file(weights, file)
                if number % 4 >= 2:
                    file = write_shards(weights, self.folder)
                ours = self.ours(model, file, inputs)
                theirs = model(input_ids=ids, pixel_values=inputs["pictures"], labels=labels)
                theirs.loss.backward()
                rows = theirs.logits.flatten(0, 1)[inputs["label_rows"]]
                scale = rows.abs().max()
                self.assertLessEqual((ours["logits"] - rows).abs().max(), 2e-5 * scale)
                self.assertAlmostEqual(ours["loss"].item(), theirs.loss.item(), delta=5e-6 * theirs.loss.item() + 1e-6)
                gradients = own_names({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
                self.assertEqual({n for n in ours if n.startswith("grad.")}, {"grad." + n for n in gradients})
                for name, gradient in gradients.items():
                    bound = 1e-4 * gradient.norm() + 1e-6
                    self.assertLessEqual((ours["grad." + name] - gradient).norm(), bound, name)
                with torch.no_grad():
                    greedy = model.generate(input_ids=inputs["prompts"], max_new_tokens=8, do_sample=False,
                                            eos_token_id=None, pad_token_id=0)  # fmt: skip
                self.assertTrue(torch.equal(ours["greedy"], greedy[:, 5:]))

    def test_bf16_is_as_near_to_fp64_as_transformers_is(self):
        """Under autocast, both against the same weights in double precision; of a model, twice its error at most."""
        draw = random.Random(34)
        for number in range(6):
            with self.subTest(number=number):
                model = random_model(draw)
                inputs, ids, labels = self.inputs(model, draw)
                save_file(saved(model), self.folder / "weights.safetensors")
                ours = self.ours(model, self.folder / "weights.safetensors", inputs, "bf16")
                call = {"input_ids": ids, "pixel_values": inputs["pictures"], "labels": labels}
                with torch.no_grad():
                    with torch.autocast("cpu", torch.bfloat16):
                        theirs = model(**call)
                    exact = model.double()(**call | {"pixel_values": inputs["pictures"].double()})
                wanted = exact.logits.flatten(0, 1)[inputs["label_rows"]]
                their_error = (theirs.logits.flatten(0, 1)[inputs["label_rows"]] - wanted).norm()
                self.assertGreater(their_error, 1e-3 * wanted.norm())  # bf16 it is
                self.assertLessEqual((ours["logits"] - wanted).norm(), 2 * their_error)
                model.float()

    def test_tokens_are_those_of_sentencepiece(self):
        import sentencepiece

        draw = random.Random(32)
        words = "what is at the top left? a bag, der Mantel über Größe 1234 <image> </s> \n\t ..  日本語 🙂 x".split(" ")
        texts = [" ".join(draw.choices(words, k=draw.randrange(1, 12))) for _ in range(400)]
        texts += ["", " ", "  a  b ", "\n", "ü" * 50, "abcabcabc" * 40, "".join(map(chr, range(1, 400)))]
        (self.folder / "learnt.txt").write_text("\n".join(texts[:200]).replace("🙂", ""))
        (self.folder / "texts.json").write_text(json.dumps(texts))
        for size in ("320", "500"):
            model = self.folder / f"{size}.model"
            subprocess.run([TOKENIZER, self.folder / "learnt.txt", model, size], check=True, capture_output=True)
            ours = subprocess.run([OUTPUTS, model, self.folder / "texts.json"], capture_output=True, text=True)
            self.assertEqual(ours.returncode, 0, ours.stderr)
            theirs = sentencepiece.SentencePieceProcessor(model_file=str(model))
            for text, ids in zip(texts, json.loads(ours.stdout)):
                self.assertEqual(ids, theirs.encode(text), text)

    def test_tokenizer_and_judge_say_what_they_cannot_use(self):
        def refused(code, *command):
            done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
            self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
            return done.stderr

        (self.folder / "texts.txt").write_text("a b\n" * 50)
        (self.folder / "list.json").write_text('[{"id": 3}]')
        (self.folder / "broken.json").write_text("[")
        self.assertIn("none.txt: there is no such file", refused(4, TOKENIZER, "none.txt", "m.model", "300"))
        self.assertIn("TOKENS 30o: allowed: a whole number from 260 on", refused(2, TOKENIZER, "texts.txt", "m.model", "30o"))
        self.assertIn("does not exist; make it first", refused(2, TOKENIZER, "texts.txt", "none/m.model", "300"))
        (self.folder / "old.model").touch()
        self.assertIn("old.model: there is such a file", refused(2, TOKENIZER, "texts.txt", "old.model", "300"))
        wrong = {"none.json": "none.json: there is no such file", "broken.json": "broken.json is not JSON",
                 "list.json": "is not as draw-dialogues and dit-sample --ask write it"}  # fmt: skip
        for name, words in wrong.items():
            self.assertIn(words, refused(4, JUDGE, "--truth", name, "--answers", "list.json"))

    def dialogues(self):
        folder = self.folder / "dialogues"
        subprocess.run([DRAW, "--out", folder, "--scenes", "8", "--held-out", "2"], check=True, capture_output=True)
        subprocess.run([TOKENIZER, folder / "texts.txt", folder / "tokenizer.model", "300"], check=True,
                       capture_output=True)  # fmt: skip
        return folder

    def test_a_plan_is_its_run_and_a_packed_run_goes_on(self):
        """Dialogues of one length, for two epochs: 0 bytes between plan and run in each phase of a step."""
        folder = self.dialogues()
        one = json.loads((folder / "train_questions.json").read_text())[1]
        alike = [{**one, "id": str(i), "image": f"pictures/train-{i % 8}.png"} for i in range(24)]
        (folder / "alike.json").write_text(json.dumps(alike))
        model = random_model(random.Random(33), vocabulary=300, image=14)
        save_file(saved(model), self.folder / "base.safetensors")
        text = f"""
[llava.data]
conversations = '{folder}/alike.json'
tokenizer = '{folder}/tokenizer.model'
max_length = 96
[data]
batch = 8
"""
        adapters = {"train.parts": '["projector", "lora"]', "llava.lora.r": 4, "llava.lora.dropout": 0.1}
        cases = {
            "all": {},
            "frozen": {"train.parts": '["projector"]', "llava.base": "bf16"},
            "offloaded": {"train.parts": '["projector"]', "policies.checkpoint.keep": "offload",
                          "policies.checkpoint.offload_min_bytes": 0},
            "split": {"train.accumulate": 2, "memory.split": 2},
            "adapted in bf16": {**adapters, "llava.base": "bf16", "policies.precision.enabled": "true"},
            "nf4": {**adapters, "llava.base": "nf4", "policies.checkpoint.enabled": "true"},
            "int8": {"train.parts": '["vision", "projector"]', "llava.base": "int8"},
        }  # fmt: skip
        for name, values in cases.items():
            with self.subTest(name):
                out = self.folder / name
                more = f"init_from = '{self.folder}/base.safetensors'\nout = '{out}'\n"
                config = self.folder / f"{name}.toml"
                config.write_text(config_text(model, more=more) + text)
                settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
                # Measured here: in bf16 oneDNN takes scratch of its own, which decides the forward's peak.
                command = [PLAN, "--config", config, "--device", "cpu", "--calibration", "here", "--json", *settings]
                planned = subprocess.run(command, capture_output=True, text=True)
                self.assertEqual(planned.returncode, 0, planned.stderr)
                done = subprocess.run([TRAIN, "--config", config, *settings], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                plan = {one["name"]: one["peak_bytes"] for one in json.loads(planned.stdout)["phases"]}
                run = json.loads((out / "memory.json").read_text())["phases"]
                seen = {one["name"]: one["peak_bytes"] for one in run}
                for phase in ("forward", "backward", "first_step", "optimizer"):
                    self.assertEqual(plan[phase], seen[phase], phase)
                self.assertIn("the largest micro-batch, of step 1: ", json.loads(planned.stdout)["plan"]["data"])
        again = subprocess.run([TRAIN, "--resume", self.folder / "nf4", "--set", "train.steps=5"],
                               capture_output=True, text=True)  # fmt: skip
        self.assertEqual(again.returncode, 0, again.stderr)
        base = self.folder / "base.safetensors"
        base.write_bytes(base.read_bytes()[:-1] + b"\x01")
        refused = subprocess.run([TRAIN, "--resume", self.folder / "nf4", "--set", "train.steps=6"],
                                 capture_output=True, text=True)  # fmt: skip
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("base.safetensors has changed since (its SHA-256 differs)", refused.stderr)

    def answers(self, dialogues):
        """A run answers questions about pictures, which are judged by kind; a truth judges itself as right."""
        asked, out = dialogues / "t10k_questions_asked.json", self.folder / "answers.json"
        command = [SAMPLE, "--checkpoint", self.folder / "run", "--ask", asked, "--tokens", "6", "--out", out]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        truth = json.loads((dialogues / "t10k_questions.json").read_text())
        answers = json.loads(out.read_text())
        self.assertEqual([one["id"] for one in answers], [one["id"] for one in truth])
        perfect = [{"id": one["id"], "answer": one["conversations"][-1]["value"]} for one in truth]
        (self.folder / "perfect.json").write_text(json.dumps(perfect))
        for file, right in ((self.folder / "perfect.json", 100.0), (out, None)):
            command = [JUDGE, "--truth", dialogues / "t10k_questions.json", "--answers", file, "--json"]
            judged = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            self.assertEqual(sum(kind["asked"] for kind in judged.values()), len(truth))
            if right is not None:
                self.assertEqual({kind["right"] for kind in judged.values()}, {right})
        other = json.loads((dialogues / "t10k_questions_other.json").read_text())
        self.assertTrue(all(a["image"] != b["image"] for a, b in zip(truth, other)))

    def test_adapters_of_a_run_are_what_peft_loads_and_what_is_merged(self):
        from peft import PeftModel

        dialogues = self.dialogues()
        draw = random.Random(31)
        model = random_model(draw, vocabulary=300, image=14)
        save_file(saved(model), self.folder / "base.safetensors")
        more = f"init_from = '{self.folder}/base.safetensors'\nout = '{self.folder}/run'\n"
        text = config_text(model, parts='["projector", "lora", "norm", "head"]', more=more) + f"""
[llava.lora]
r = 4
alpha = 8
dropout = 0.1
[llava.data]
conversations = '{dialogues}/train_questions.json'
tokenizer = '{dialogues}/tokenizer.model'
max_length = 96
[data]
batch = 4
[optimizer]
lr = 0.05
"""
        (self.folder / "run.toml").write_text(text)
        run = [TRAIN, "--config", self.folder / "run.toml"]
        done = subprocess.run(run, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for arguments in (["--adapter", self.folder / "adapter"], ["--merge", "--out", self.folder / "merged.safetensors"]):
            done = subprocess.run([EXPORT, "--checkpoint", self.folder / "run", *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        inputs, ids, labels = self.inputs(model, draw)
        with torch.no_grad():
            before = model(input_ids=ids, pixel_values=inputs["pictures"]).logits.flatten(0, 1)[inputs["label_rows"]]
            adapted = PeftModel.from_pretrained(model, self.folder / "adapter").eval()
            theirs = adapted(input_ids=ids, pixel_values=inputs["pictures"]).logits.flatten(0, 1)[inputs["label_rows"]]
        merged = self.ours(model, self.folder / "merged.safetensors", inputs)["logits"]
        self.assertGreater((theirs - before).abs().max(), 0.1)  # the adapters do something
        description = json.loads((self.folder / "adapter/adapter_config.json").read_text())
        self.assertEqual(description["modules_to_save"], ["multi_modal_projector", "language_model.norm", "lm_head"])
        self.assertLessEqual((merged - theirs).abs().max(), 1e-5 * theirs.abs().max())
        self.answers(dialogues)
        # A run that begins with adapters, ours or those that peft has written, computes as peft does.
        adapted.save_pretrained(self.folder / "of_peft")
        description = json.loads((self.folder / "of_peft/adapter_config.json").read_text())
        description["base_model_name_or_path"] = str(self.folder / "base.safetensors")
        (self.folder / "of_peft/adapter_config.json").write_text(json.dumps(description))
        for name in ("adapter", "of_peft"):
            start = [*run, "--set", f"train.init_from={self.folder / name}", "--set", f"train.out={self.folder}/on_{name}",
                     "--set", "train.steps=1", "--set", "optimizer.lr=1e-30"]  # fmt: skip
            done = subprocess.run(start, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            joined = self.folder / f"on_{name}.safetensors"
            merge = [EXPORT, "--checkpoint", self.folder / f"on_{name}", "--merge", "--out", joined]
            done = subprocess.run(merge, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            logits = self.ours(model, joined, inputs)["logits"]
            self.assertLessEqual((logits - theirs).abs().max(), 1e-5 * theirs.abs().max())
        again = subprocess.run([EXPORT, "--checkpoint", self.folder / "run", "--adapter", self.folder / "adapter"],
                               capture_output=True, text=True)  # fmt: skip
        self.assertEqual(again.returncode, 2)
        self.assertIn("there is an adapter in it", again.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

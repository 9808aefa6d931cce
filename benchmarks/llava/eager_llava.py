"""A LLaVA of transformers, with adapters of peft and weights in 4 bits of bitsandbytes where they are asked for, and a
trainer that makes a step whenever a line "step" comes in: the other side of benchmarks/llava/step.py."""

import argparse
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import torch
from safetensors.torch import load_file
from transformers import BitsAndBytesConfig, CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from eager_side import check_gradients, part, read_safetensors, serve  # noqa: E402

IMAGE = 1  # the id of a picture's tokens
NAMES = (  # ours, theirs
    ("model.vision_tower.vision_tower.vision_model.", "model.vision_tower.vision_model."),
    ("model.mm_projector.0.", "model.multi_modal_projector.linear_1."),
    ("model.mm_projector.2.", "model.multi_modal_projector.linear_2."),
    ("model.", "model.language_model."),
)


def their_name(ours: str) -> str:
    for begin, theirs in NAMES:
        if ours.startswith(begin):
            return theirs + ours.removeprefix(begin)
    return ours


def model_of(config: dict) -> LlavaConfig:
    vision, text = config["llava"]["vision"], config["llava"]["text"]
    return LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=vision["hidden"], intermediate_size=vision["mlp"], num_hidden_layers=vision["depth"],
            num_attention_heads=vision["heads"], image_size=vision["image"], patch_size=vision["patch"]),
        text_config=LlamaConfig(
            hidden_size=text["hidden"], intermediate_size=text["mlp"], num_hidden_layers=text["depth"],
            num_attention_heads=text["heads"], num_key_value_heads=text["heads"], vocab_size=text["vocabulary"],
            rms_norm_eps=1e-5, tie_word_embeddings=False, use_cache=False),
        image_token_index=IMAGE, vision_feature_layer=-2)  # fmt: skip


def with_weights(config: dict, file: str, packed: bool) -> LlavaForConditionalGeneration:
    model = LlavaForConditionalGeneration(model_of(config))
    weights = {their_name(name): tensor for name, tensor in load_file(file).items()}
    missing, unknown = model.load_state_dict(weights, strict=False)
    assert not unknown and all(name.endswith("position_ids") for name in missing), (missing, unknown)
    if not packed:
        return model
    kinds = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16, llm_int8_skip_modules=["vision_tower", "multi_modal_projector", "lm_head"],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        packed = LlavaForConditionalGeneration.from_pretrained(
            folder, quantization_config=kinds, device_map="cpu", dtype=torch.bfloat16
        )
    packed.model.multi_modal_projector.float()  # is trained
    return packed


def with_adapters(model: torch.nn.Module, trained: dict[str, torch.Tensor], dropout: float) -> torch.nn.Module:
    from peft import LoraConfig, get_peft_model

    ranks = {tensor.shape[0] for name, tensor in trained.items() if name.endswith("lora_A.weight")}
    (rank,) = ranks
    targets = r".*language_model\.layers.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=dropout, target_modules=targets))
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in trained.items():
            if ".lora_" in name:
                parameters[adapted_name(name)].copy_(tensor)
    for name, parameter in model.named_parameters():
        if "multi_modal_projector" in name:
            parameter.requires_grad_(True)
    return model


def adapted_name(ours: str) -> str:
    name = "base_model.model." + their_name(ours)
    return name.replace(".lora_A.weight", ".lora_A.default.weight").replace(".lora_B.weight", ".lora_B.default.weight")


def check_all_together(model: torch.nn.Module, norms: dict[str, torch.Tensor]) -> None:
    """In bf16 single gradients are up to a quarter rounding, either way: random words teach little. Their norm together
    is not."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert set(trained) == set(norms), set(trained) ^ set(norms)
    seen = torch.stack([parameter.grad.norm() for parameter in trained.values()]).norm().item()
    wanted = torch.stack(list(norms.values())).norm().item()
    assert abs(seen / wanted - 1) <= 0.05, f"norm of all gradients {seen}, not {wanted}"
    model.zero_grad(set_to_none=True)


class Training:
    def __init__(self, model, reference: dict[str, torch.Tensor], bf16: bool):
        self.model, self.bf16 = model, bf16
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
        ids = reference["ids"].clone()
        rows = ids.numel()
        ids.view(rows)[reference["picture_rows"]] = IMAGE
        labels = torch.full((rows,), -100)
        labels[reference["label_rows"] + 1] = reference["labels"]
        self.batch = {"input_ids": ids, "pixel_values": reference["pictures"], "labels": labels.view_as(ids)}
        self.loss_sum = torch.zeros(())

    def loss(self) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            return self.model(**self.batch).loss

    def check(self, loss: torch.Tensor, norms: dict[str, torch.Tensor]) -> None:
        """Loss and gradients of the same weights and batch are those of the other side, up to rounding."""
        self.model.eval()
        seen = self.loss()
        torch.testing.assert_close(seen, loss[0], rtol=1e-2 if self.bf16 else 1e-4, atol=1e-5)
        seen.backward()
        if self.bf16:
            check_all_together(self.model, norms)
        else:
            check_gradients(self.model, norms, 1e-6)
        self.model.train()

    def step(self) -> None:
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--packed", action="store_true", help="the decoder in NF4, the rest of the base in bf16, under autocast")
    parser.add_argument("--dropout", type=float, default=0.0)
    arguments = parser.parse_args()
    config = tomllib.loads(Path(arguments.config).read_text())
    tensors = read_safetensors(arguments.reference)
    reference, norms, trained = (part(tensors, begin) for begin in ("reference.", "gradient_norm.", "weight."))
    model = with_weights(config, arguments.weights, arguments.packed)
    adapts = any(".lora_" in name for name in trained)
    named = adapted_name if adapts else their_name
    norms = {named(name): norm for name, norm in norms.items()}
    if adapts:
        model = with_adapters(model, trained, arguments.dropout)
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in norms)
    training = Training(model, reference, arguments.packed)
    training.check(reference["loss"], norms)
    serve(training.step, "cpu")


if __name__ == "__main__":
    main()

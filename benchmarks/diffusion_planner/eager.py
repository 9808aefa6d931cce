"""The original Diffusion-Planner in PyTorch, from a checkout of it, and a loop that trains it a step whenever a line
"step" comes in: the other side of benchmarks/diffusion_planner/step.py.

Everything that is timed is the checkout's own code but the loop around it, which leaves out what a step can do without:
statistics of gradients, averages, progress bars.
"""

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.util
import math
import random
import sys
import types
import warnings
from pathlib import Path
from unittest import mock

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from eager_side import check_gradients, part, read_safetensors, serve  # noqa: E402

# What the original's modules import and no step of a training needs.
UNNEEDED = ("cv2", "matplotlib", "mmengine", "PIL", "scipy", "shapely", "torchvision", "tqdm", "wandb")
# The original's names of what preset H is.
PRESET_H = {
    "hidden_dim": 256, "num_heads": 8, "encoder_mixer_depth": 6, "encoder_fusion_depth": 6, "decoder_depth": 3,
    "time_len": 31, "future_len": 80, "agent_num": 320, "agent_state_dim": 11, "predicted_neighbor_num": 320,
    "static_objects_num": 5, "static_objects_state_dim": 10, "lane_num": 140, "lane_len": 20, "route_num": 25,
    "route_len": 20, "polygon_num": 10, "polygon_len": 40, "line_string_num": 60, "line_string_len": 20,
    "use_ego_history": True, "use_turn_indicators": True,
    "encoder_drop_path_rate": 0.1, "decoder_drop_path_rate": 0.1, "ego_history_dropout_rate": 0.4,
    "diffusion_model_type": "x_start", "use_velocity_representation": False, "guidance_scale": 0.5,
    "hybrid_loss_omega": 0.1, "hybrid_loss_window": 10, "ego_prediction_horizon": 80,
    "alpha_planning_loss": 1.0, "alpha_neighbor_loss": 0.1,
    "coeff_position_lat_loss": 1.0, "coeff_position_lon_loss": 1.0, "coeff_heading_l2_loss": 1.0,
    "coeff_velocity": 1.0, "coeff_timestep": [1.0, 1.0, 1.0, 1.0],
    "coeff_road_border_loss": 1.0, "road_border_margin": 0.25, "road_border_n_interp": 2,
    "coeff_neighbor_collision_loss": 0.0, "neighbor_collision_margin": 2.0,
    "neighbor_collision_margin_vehicle": 0.25, "neighbor_collision_margin_pedestrian": 1.0,
    "neighbor_collision_margin_bicycle": 0.5,
    "use_bf16": False, "use_activation_checkpointing": False, "device": "cpu", "ddp": False,
}  # fmt: skip
DROPOUT = ("encoder_drop_path_rate", "decoder_drop_path_rate", "ego_history_dropout_rate")


class Unneeded(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of packages that are not installed and not needed; whatever is taken from one is a mock."""

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name.split(".")[0] in UNNEEDED else None

    def create_module(self, spec):
        module = mock.MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


def only_layers_of_timm() -> None:
    """timm's layers without all of its models, which need torchvision and more."""
    place = importlib.util.find_spec("timm").submodule_search_locations
    for name, path in (("timm", list(place)), ("timm.models", [])):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = path
    sys.modules["timm.models.layers"] = importlib.import_module("timm.layers")


class Original:
    """The checkout's modules by name."""

    def __init__(self, checkout: str):
        self.root = Path(checkout).resolve() / "diffusion_planner"
        sys.path.insert(0, str(self.root))
        sys.path.append(str(self.root.parent))  # planner_metrics
        sys.meta_path.append(Unneeded())
        only_layers_of_timm()

    def __getattr__(self, name: str):
        return importlib.import_module(f"diffusion_planner.{name.replace('__', '.')}")


def config_of(original: Original, dropout: bool) -> argparse.Namespace:
    config = argparse.Namespace(**PRESET_H)
    for rate in () if dropout else DROPOUT:
        setattr(config, rate, 0.0)
    config.normalization_file_path = str(original.root / "normalization.json")
    normalizer = original.utils__normalizer
    config.state_normalizer = normalizer.StateNormalizer.from_json(config)
    config.observation_normalizer = normalizer.ObservationNormalizer.from_json(config)
    return config


class Training:
    def __init__(self, original: Original, tensors: dict[str, torch.Tensor], dropout: bool, augmentation: bool):
        self.original = original
        self.config = config_of(original, dropout)
        self.model = original.model__diffusion_planner.Diffusion_Planner(self.config)
        self.model.load_state_dict(part(tensors, "weight."), strict=True)
        self.model.train()
        self.batches = []
        while batch := part(tensors, f"frames.{len(self.batches)}."):
            self.batches.append(batch)
        self.augment = None
        if augmentation:
            self.augment = original.utils__data_augmentation.StatePerturbation(
                augment_prob=0.5, num_refine=20, device="cpu", ego_past_noise_std=0.1,
                use_smoothing_future_trajectory=True)  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        self.steps = 0

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        with_cos_sin = self.original.train_epoch.heading_to_cos_sin
        # The augmentation writes to them.
        inputs = dict(batch) if self.augment is None else {key: value.clone() for key, value in batch.items()}
        for key in ("ego_agent_past", "goal_pose"):
            inputs[key] = with_cos_sin(inputs[key])
        ego, neighbors = inputs["ego_agent_future"], inputs["neighbor_agents_future"]
        if self.augment is not None:
            inputs, ego, neighbors = self.augment(inputs, ego, neighbors)
        absent = (neighbors == 0).all(dim=-1)
        neighbors = with_cos_sin(neighbors)
        neighbors[absent] = 0.0
        futures = (with_cos_sin(ego), neighbors, absent)
        inputs = self.config.observation_normalizer(inputs)
        terms = self.original.model__module__decoder.compute_training_loss(self.model, inputs, futures, self.config)
        return (
            self.config.alpha_neighbor_loss * terms["neighbor_prediction_loss"]
            + self.config.alpha_planning_loss * terms["ego_planning_loss"]
            + terms["turn_indicator_loss"]
            + self.config.coeff_road_border_loss * terms["road_border_loss"]
        )

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(self.batches[self.steps % len(self.batches)]).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5)
        self.optimizer.step()
        self.steps += 1


@contextlib.contextmanager
def draws(reference: dict[str, torch.Tensor]):
    """The original draws its times, noise, delays and factor here: those of the other side."""
    with mock.patch.object(torch, "rand", lambda *_, **__: reference["uniform"].clone()), \
         mock.patch.object(torch, "randn_like", lambda *_, **__: reference["z"].clone()), \
         mock.patch.object(torch, "randint", lambda *_, **__: reference["delay"].clone()), \
         mock.patch.object(random, "uniform", lambda *_: reference["shorter"].item()):  # fmt: skip
        yield


def check_same_function(original: Original, tensors: dict[str, torch.Tensor]) -> None:
    """Loss and gradients of the same weights, frames and draws are those of the other side, up to rounding."""
    training = Training(original, tensors, dropout=False, augmentation=False)
    reference = part(tensors, "reference.")
    with draws(reference):
        loss = training.loss(training.batches[0])
    seen, wanted = loss.item(), reference["loss"].item()
    assert math.isclose(seen, wanted, rel_tol=1e-5), f"loss {seen}, not {wanted}"
    loss.backward()
    # Without dropout some gradients are 0 in exact arithmetic.
    check_gradients(training.model, part(tensors, "gradient_norm."), min_norm=1e-6)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--original", required=True)
    parser.add_argument("--reference", required=True, help="file of the other side")
    parser.add_argument("--augmentation", action="store_true")
    arguments = parser.parse_args()
    tensors = read_safetensors(arguments.reference)
    original = Original(arguments.original)
    check_same_function(original, tensors)
    serve(Training(original, tensors, dropout=True, augmentation=arguments.augmentation).step, "cpu")


if __name__ == "__main__":
    main()

"""What PyTorch makes of a small model: output, loss, gradients, steps of AdamW, the same with LoRA."""
import copy

import peft
import torch
from peft.utils import get_peft_model_state_dict

from fixture_models import run

STEPS = 5
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2}
LORA = {"rank": 4, "alpha": 8, "targets": ["add_k_proj", "add_q_proj", "add_v_proj", "to_add_out", "to_k", "to_out.0",
                                           "to_q", "to_v"]}


def loss_of(output, x):
    return torch.nn.functional.mse_loss(output, x["target"])


def first_step(model, x):
    """Output, loss and gradients; a weight without gradient is left out."""
    model.zero_grad()
    output = run(model, x)
    loss = loss_of(output, x)
    loss.backward()
    return output.detach(), loss.item(), {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}


def train(model, x, max_norm=None):
    """Losses before each step of AdamW and after the last; with `max_norm` gradients are clipped to it. Returns the
    norms of all gradients (before clipping) too."""
    trained = [p for p in model.parameters() if p.requires_grad]
    # one tensor at a time: the order of operations that NUMERICS.md gives
    optimizer = torch.optim.AdamW(trained, foreach=False, fused=False, **ADAMW)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(run(model, x), x)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, max_norm or float("inf")).item())
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(loss_of(run(model, x), x).item())
    return losses, norms


def in_double(model, x):
    return copy.deepcopy(model).double(), {k: v.double() for k, v in x.items()}


def relative(a, b):
    """Largest error of a tensor relative to its largest element."""
    scale = b.abs().max().item()
    return (a.double() - b).abs().max().item() / scale if scale > 0 else a.abs().max().item()


def add_lora(model):
    """LoRA on the attention projections; B is seeded too, or A would have no gradient in the first step."""
    torch.manual_seed(3000)
    model.requires_grad_(False)
    model.add_adapter(peft.LoraConfig(r=LORA["rank"], lora_alpha=LORA["alpha"], target_modules=LORA["targets"],
                                      init_lora_weights="gaussian"))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.copy_(0.1 * torch.randn(parameter.shape))


def lora_state(model, prefix):
    """The adapters under the names that diffusers saves them with."""
    state = get_peft_model_state_dict(model)
    return {f"{prefix}.{key}": value.detach().clone() for key, value in state.items()}


def lora_names(gradients, prefix):
    """Gradients under the names of lora_state."""
    return {f"{prefix}.{key.replace('.default', '')}": value for key, value in gradients.items()}

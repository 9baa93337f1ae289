# SPDX-License-Identifier: MIT
"""Adapters of models of images: trained with peft and with LyCORIS, and as kohya's trainer writes them; merged by diffusers and by LyCORIS. A
folder for each case, as in make_adapters.py. Runs in the Python that has the libraries.

    make_images.py FOLDER
"""
import os
import pathlib
import sys

os.environ['HF_HUB_OFFLINE'] = '1'

import diffusers  # pylint: disable=import-error
import lycoris  # pylint: disable=import-error
import peft  # pylint: disable=import-error
import torch  # pylint: disable=import-error
import transformers  # pylint: disable=import-error
from diffusers.training_utils import _collate_lora_metadata  # pylint: disable=import-error
from safetensors.torch import save_file  # pylint: disable=import-error

torch.cuda.is_current_stream_capturing = lambda: False  # there is no CUDA to ask


def unet():
    return diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32), cross_attention_dim=24, attention_head_dim=4,
        down_block_types=('CrossAttnDownBlock2D', 'DownBlock2D'), up_block_types=('UpBlock2D', 'CrossAttnUpBlock2D'), norm_num_groups=8)


def flux():
    return diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=24,
        pooled_projection_dim=24, axes_dims_rope=[4, 4, 8])


def pipeline(model):
    if isinstance(model, diffusers.FluxTransformer2DModel):
        return diffusers.FluxPipeline(None, None, None, None, None, None, model)
    text = transformers.CLIPTextModel(transformers.CLIPTextConfig(vocab_size=32, hidden_size=24, intermediate_size=32, num_hidden_layers=1,
                                                                  num_attention_heads=2))
    return diffusers.StableDiffusionPipeline(None, text, None, model, None, None, None, requires_safety_checker=False)


def train(model, parameters):
    optimizer = torch.optim.AdamW(parameters, lr=0.02)
    random = torch.Generator().manual_seed(1)
    sample, text = torch.randn(1, 4, 8, 8, generator=random).to(model.dtype), torch.randn(1, 5, 24, generator=random).to(model.dtype)
    for _ in range(3):
        model(sample, 3, text).sample.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def save(folder, build, dtype, absolute=False):
    """The base of a case, once; returns a new one each time."""
    torch.manual_seed(1)
    model = build().to(dtype)
    if not (folder / 'base').exists():
        model.save_pretrained(folder / 'base')
    for one in model.parameters() if absolute else ():
        one.data.abs_()
    return model


def merge(folder, build, dtype, file):
    """By diffusers."""
    for kind in ('merged', 'terms'):
        model = save(folder, build, dtype, kind == 'terms')
        pipe = pipeline(model)
        pipe.load_lora_weights(folder, weight_name=file)
        for name, one in model.named_parameters():
            if kind == 'terms' and 'lora_' in name:
                one.data.abs_()
        pipe.fuse_lora(lora_scale=0.7)
        pipe.unload_lora_weights()
        model.save_pretrained(folder / kind)


def by_peft(folder, dtype):
    model = save(folder, unet, dtype)
    model.add_adapter(peft.LoraConfig(r=4, lora_alpha=6, rank_pattern={'attn2.to_q': 2}, alpha_pattern={'attn2': 3},
                                      target_modules=['to_q', 'to_k', 'to_v', 'to_out.0', 'conv1', 'proj_in']))
    train(model, [one for one in model.parameters() if one.requires_grad])
    diffusers.StableDiffusionPipeline.save_lora_weights(folder, unet_lora_layers=peft.get_peft_model_state_dict(model),
                                                        **_collate_lora_metadata({'unet': model}))
    merge(folder, unet, dtype, 'pytorch_lora_weights.safetensors')


def kohya_file(path, modules, rank=4):
    random = torch.Generator().manual_seed(2)
    tensors = {}
    for name, (n_out, n_in, *kernel) in modules.items():
        tensors[name + '.lora_down.weight'] = torch.randn(rank, n_in, *kernel, generator=random) * 0.1
        tensors[name + '.lora_up.weight'] = torch.randn(n_out, rank, *(1 for _ in kernel), generator=random) * 0.1
        tensors[name + '.alpha'] = torch.tensor(3.0)
    save_file(tensors, path, {'ss_network_dim': str(rank)})


def by_kohya(folder, dtype):
    model = save(folder, unet, dtype)
    modules = {'lora_unet_' + name.replace('.', '_'): one.weight.shape for name, one in model.named_modules()
               if name.endswith(('to_q', 'to_v', 'to_out.0', 'ff.net.0.proj', 'ff.net.2', 'proj_in', 'proj_out'))}
    kohya_file(folder / 'kohya.safetensors', modules)
    merge(folder, unet, dtype, 'kohya.safetensors')


def flux_by_kohya(folder, dtype):
    """The names and the joint tensors of the original model."""
    save(folder, flux, dtype)
    double, single = 'lora_unet_double_blocks_0_', 'lora_unet_single_blocks_0_'
    modules = {double + name: shape for part in ('img', 'txt') for name, shape in (
        (part + '_attn_qkv', (96, 32)), (part + '_attn_proj', (32, 32)), (part + '_mlp_0', (128, 32)), (part + '_mlp_2', (32, 128)),
        (part + '_mod_lin', (192, 32)))}
    # diffusers cuts linear1 at the sizes of the one large model.
    modules |= {single + 'linear2': (32, 32 + 128), single + 'modulation_lin': (96, 32)}
    kohya_file(folder / 'kohya.safetensors', modules)
    merge(folder, flux, dtype, 'kohya.safetensors')


def by_lycoris(folder, dtype, algorithm):
    lycoris.LycorisNetwork.apply_preset({'target_name': ['.*attn1.*', '.*conv1.*', '.*ff.*']})
    model = save(folder, unet, dtype)
    # merge_to of LyCORIS multiplies LoKr by alpha / rank twice; its forward does it once.
    network = lycoris.create_lycoris(model, 1.0, linear_dim=4, linear_alpha=4 if algorithm == 'lokr' else 2, algo=algorithm)
    network.apply_to()
    train(model, network.parameters())
    network.save_weights(folder / 'lycoris.safetensors', torch.float32, {})
    model = save(folder, unet, dtype)
    network, _ = lycoris.create_lycoris_from_weights(0.7, folder / 'lycoris.safetensors', model)
    network.merge_to(0.7)
    model.save_pretrained(folder / 'merged')


CASES = {'unet-peft': (by_peft,), 'unet-kohya': (by_kohya,), 'flux-kohya': (flux_by_kohya,), 'unet-lycoris-locon': (by_lycoris, 'locon'),
         'unet-lycoris-lokr': (by_lycoris, 'lokr')}

if __name__ == '__main__':
    for name, (make, *arguments) in CASES.items():
        for dtype in (torch.float32, torch.bfloat16) if make is not by_lycoris else (torch.float32,):
            case = pathlib.Path(sys.argv[1], '%s-%s' % (name, str(dtype).removeprefix('torch.')))
            case.mkdir(parents=True)
            make(case, dtype, *arguments)

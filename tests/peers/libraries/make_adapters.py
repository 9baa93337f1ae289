# SPDX-License-Identifier: MIT
"""Trains adapters with peft on tiny models, for some steps, and merges them: a folder for each case, with the base, the adapter and the merged
model, each as the library saves it, and with `terms`, the same merge of absolute values. Runs in the Python that has the libraries.

    make_adapters.py FOLDER CASE...
"""
import copy
import os
import pathlib
import sys

os.environ['HF_HUB_OFFLINE'] = '1'

import peft  # pylint: disable=import-error
import torch  # pylint: disable=import-error
import transformers  # pylint: disable=import-error

torch.cuda.is_current_stream_capturing = lambda: False  # there is no CUDA to ask

TEXT = {'input_ids': torch.arange(12).reshape(2, 6), 'labels': torch.arange(12).reshape(2, 6)}
SMALL = {'vocab_size': 64, 'hidden_size': 32, 'intermediate_size': 48, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2}


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))


def mixtral():
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0,
                                                                  attn_pdrop=0, bos_token_id=1, eos_token_id=2))


def whisper():
    return transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=64, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=16, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1))


LINEAR = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj']
EXPERTS = ['mlp.experts.gate_up_proj', 'mlp.experts.down_proj']
SOUND = {'input_features': torch.linspace(-1, 1, 2 * 8 * 32).reshape(2, 8, 32), 'labels': TEXT['labels']}

CASES = {
    'llama': (llama, TEXT, peft.LoraConfig(r=4, lora_alpha=12, target_modules=LINEAR, rank_pattern={'q_proj': 6}, alpha_pattern={'layers.0.*': 5})),
    'llama-rslora-head': (llama, TEXT, peft.LoraConfig(r=4, lora_alpha=12, use_rslora=True, target_modules=LINEAR, modules_to_save=['lm_head'])),
    'llama-dora': (llama, TEXT, peft.LoraConfig(r=4, use_dora=True, target_modules=LINEAR)),
    'llama-embedding': (llama, TEXT, peft.LoraConfig(r=4, target_modules=['embed_tokens', 'q_proj'], trainable_token_indices=None)),
    'llama-loha': (llama, TEXT, peft.LoHaConfig(r=4, alpha=8, target_modules=LINEAR)),
    'llama-lokr': (llama, TEXT, peft.LoKrConfig(r=4, alpha=8, target_modules=LINEAR)),
    'llama-ia3': (llama, TEXT, peft.IA3Config(target_modules=['k_proj', 'v_proj', 'down_proj'], feedforward_modules=['down_proj'])),
    'llama-oft': (llama, TEXT, peft.OFTConfig(r=0, oft_block_size=8, target_modules=LINEAR)),
    'llama-vera': (llama, TEXT, peft.VeraConfig(r=8, target_modules=['q_proj', 'o_proj'])),
    'llama-adalora': (llama, TEXT, peft.AdaLoraConfig(init_r=6, target_r=4, lora_alpha=8, total_step=40, tinit=2, tfinal=2, target_modules=LINEAR)),
    'mixtral': (mixtral, TEXT, peft.LoraConfig(r=4, lora_alpha=8, target_modules=['q_proj', 'v_proj'])),
    'mixtral-experts': (mixtral, TEXT, peft.LoraConfig(r=4, lora_alpha=8, target_modules=['q_proj'], target_parameters=EXPERTS)),
    'gpt2': (gpt2, TEXT, peft.LoraConfig(r=4, lora_alpha=8, fan_in_fan_out=True, target_modules=['c_attn', 'c_fc', 'c_proj'])),
    'gpt2-embedding': (gpt2, TEXT, peft.LoraConfig(r=4, lora_alpha=8, fan_in_fan_out=True, target_modules=['c_attn', 'wte', 'wpe'])),
    'whisper': (whisper, SOUND, peft.LoraConfig(r=4, lora_alpha=8, target_modules=['q_proj', 'v_proj', 'fc1', 'fc2', 'conv1', 'conv2'])),
}


def train(model, batch, dtype):
    batch = {name: one.to(dtype) if one.is_floating_point() else one for name, one in batch.items()}
    model.eval()
    for one in model.modules():
        if hasattr(one, 'base_layer') and hasattr(one.base_layer, 'stride'):
            one.stride = one.base_layer.stride  # Whisper asks for it
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.02)
    for step in range(5):
        model(**batch, use_cache=False).loss.backward()
        optimizer.step()
        if hasattr(model.base_model, 'update_and_allocate'):
            model.base_model.update_and_allocate(step)
        optimizer.zero_grad()


def make(folder, name, dtype):
    torch.manual_seed(1)
    build, batch, config = CASES[name]
    base = build().to(dtype)
    base.save_pretrained(folder / 'base')
    base = type(base).from_pretrained(folder / 'base', dtype=dtype)
    model = peft.get_peft_model(base, copy.deepcopy(config))
    train(model, batch, dtype)
    model.save_pretrained(folder / 'adapter')

    def merge(kind, change):
        loaded = peft.PeftModel.from_pretrained(type(base).from_pretrained(folder / 'base', dtype=dtype), folder / 'adapter')
        change(loaded)
        loaded.merge_and_unload().save_pretrained(folder / kind)

    def positive(loaded):
        for one in loaded.parameters():
            one.data.abs_()

    merge('merged', lambda loaded: None)
    merge('terms', positive)


if __name__ == '__main__':
    for case in sys.argv[2:] or CASES:
        for dtype in ('float32', 'bfloat16', 'float16'):
            if dtype != 'float16' or case in ('llama', 'gpt2'):
                make(pathlib.Path(sys.argv[1], '%s-%s' % (case, dtype)), case, getattr(torch, dtype))

# SPDX-License-Identifier: MIT
"""Merges of three tiny models by mergekit: their folders `one`, `two` and `three`, and one for each method. Runs in the Python that has the
libraries.

    make_merges.py FOLDER
"""
import pathlib
import sys

import torch  # pylint: disable=import-error
import transformers  # pylint: disable=import-error
import yaml
from mergekit.config import MergeConfiguration  # pylint: disable=import-error
from mergekit.merge import run_merge  # pylint: disable=import-error
from mergekit.options import MergeOptions  # pylint: disable=import-error

NAMES = ('one', 'two', 'three')
METHODS = {
    'linear': {'merge_method': 'linear', 'models': [('one', {'weight': 1}), ('two', {'weight': 0.5}), ('three', {'weight': 2})]},
    'linear-by-key': {'merge_method': 'linear', 'models': [('one', {'weight': 1}), ('two', {'weight': [
        {'filter': 'mlp', 'value': 3}, {'filter': '*', 'value': 0.25}]})]},
    'slerp': {'merge_method': 'slerp', 'base': 'one', 'models': [('one', {}), ('two', {})], 'parameters': {'t': 0.3}},
    'task': {'merge_method': 'task_arithmetic', 'base': 'one', 'models': [('two', {'weight': 0.4}), ('three', {'weight': -0.7})]},
}


def model(seed, dtype, folder):
    torch.manual_seed(seed)
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                                                  num_attention_heads=4, num_key_value_heads=2))
    for one in made.parameters():
        one.data.add_(torch.randn_like(one) * 0.05)
    made.to(dtype).save_pretrained(folder)


def merge(folder, name, dtype):
    method = dict(METHODS[name])
    config = {'merge_method': method['merge_method'], 'dtype': dtype, 'parameters': method.get('parameters', {}),
              'models': [{'model': str(folder / one), 'parameters': parameters} for one, parameters in method['models']]}
    if 'base' in method:
        config['base_model'] = str(folder / method['base'])
    run_merge(MergeConfiguration.model_validate(yaml.safe_load(yaml.safe_dump(config))), str(folder / name),
              MergeOptions(copy_tokenizer=False, write_model_card=False))


if __name__ == '__main__':
    for kind in ('float32', 'bfloat16', 'float16'):
        top = pathlib.Path(sys.argv[1], kind)
        for i, each in enumerate(NAMES):
            model(i, getattr(torch, kind), top / each)
        for each in METHODS:
            merge(top, each, kind)

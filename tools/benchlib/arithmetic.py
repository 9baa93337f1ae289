# SPDX-License-Identifier: MIT
"""Adapters and sums: the layout of a small Llama (15 layers, hidden size 1536, BF16) with an adapter of rank 16 on seven projections of each."""
import json
import os
import shutil
import statistics
import subprocess

from benchlib.make import MIB, write_safetensors
from benchlib.measure import has_module, python_seconds, run, run_accounted

WORDS, RANK = 32000, 16

# Of tools/test --peers: it has peft and mergekit, and a torch for them.
LIBRARIES = os.environ.get("WFS_LIBRARIES", "build/peers/libraries")
# Prints processor time without that of the imports, and the most memory in MB.
LIBRARY = """import resource, sys, time, torch
%s
torch.set_num_threads(1)
start = time.process_time()
%s
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
PEFT = LIBRARY % ("from peft import PeftModel\nfrom transformers import LlamaForCausalLM", """base, adapter, out = sys.argv[1:]
model = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(base, dtype=torch.bfloat16), adapter)
model.merge_and_unload().save_pretrained(out, max_shard_size="10GB")""")
MERGEKIT = LIBRARY % ("from mergekit.config import MergeConfiguration\nfrom mergekit.merge import run_merge, MergeOptions\nimport transformers", """*models, out = sys.argv[1:]
config = {"merge_method": "linear", "models": [{"model": model, "parameters": {"weight": 0.5}} for model in models]}
run_merge(MergeConfiguration.model_validate(config), out, MergeOptions(copy_tokenizer=False, write_model_card=False, quiet=True))""")

# 4 KiB at random places, after one read; the kernel reads nothing ahead.
RANDOM_READS = """import os, random, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
places = random.Random(1).sample(range(os.fstat(fd).st_size // 4096), 500)
os.pread(fd, 4096, 0)
start = time.perf_counter()
for place in places:
    os.pread(fd, 4096, place * 4096)
print(time.perf_counter() - start)
"""


# What fp8_cast_bf16.py of DeepSeek-V3 does, with its kernel in torch: prints the processor time without that of the imports.
CAST_BF16 = """import sys, time, torch
from safetensors.torch import load_file, save_file
start = time.process_time()
state = load_file(sys.argv[1])
new = {}
for name, codes in state.items():
    if not name.endswith("_scale_inv"):
        scales = state[name + "_scale_inv"].repeat_interleave(128, 0)[:codes.shape[0]].repeat_interleave(128, 1)[:, :codes.shape[1]]
        new[name] = (codes.to(torch.float32) * scales).to(torch.bfloat16)
save_file(new, sys.argv[2])
print(time.process_time() - start)
"""
EXPERT = {"q_a_proj": (1536, 7168), "gate_proj": (2048, 7168), "up_proj": (2048, 7168), "down_proj": (7168, 2048)}


def write_codes(bench, n_layers):
    """A file of F8 with scales of 128 x 128, and its path."""
    tensors = []
    for layer in range(n_layers):
        for name, (n_out, n_in) in EXPERT.items():
            key, blocks = "model.layers.%d.%s.weight" % (layer, name), [-(-n_out // 128), -(-n_in // 128)]
            tensors.append((key, "F8_E4M3", [n_out, n_in], n_out * n_in))
            tensors.append((key + "_scale_inv", "F32", blocks, 4 * blocks[0] * blocks[1]))
    write_safetensors(bench.path("codes.safetensors"), tensors, bytes(byte & 0x3f for byte in os.urandom(MIB)))
    return bench.path("codes.safetensors")


def dequantize(bench, convert):
    if not has_module("safetensors.torch") or python_seconds("import torch; print(hasattr(torch, 'float8_e4m3fn') * 1)") == 0:
        return
    codes, out, theirs = write_codes(bench, 4 if bench.quick else 8), bench.path("out.safetensors"), bench.path("theirs.safetensors")
    rows = [(python_seconds(CAST_BF16, codes, theirs), run_accounted([*convert, "--dequantize=.", codes, out])) for _ in range(bench.n_runs)]
    base, mine = statistics.median(row[0] for row in rows), statistics.median(row[1][2] for row in rows)
    bench.row("`convert --dequantize` of F8 with blocks of 128, against DeepSeek's script in torch without its imports", "%.2f s" % base, "%.2f s" % mine,
              "%.2f" % (mine / base), "%.0f MB" % max(row[1][1] for row in rows))
    for path in (codes, out, theirs):
        os.unlink(path)


def write_model(bench, name, n_layers, hidden, inner, fill):
    """The directory of a Llama in BF16, its checkpoint, and the directory of an adapter for the seven projections of each layer."""
    model, adapter = bench.path(name), bench.path(name + "-adapter")
    shapes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, hidden), "self_attn.v_proj": (hidden, hidden), "self_attn.o_proj": (hidden, hidden),
              "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    base, factors = [("model.embed_tokens.weight", "BF16", [WORDS, hidden], 2 * WORDS * hidden)], []
    for layer in range(n_layers):
        for part, (n_out, n_in) in shapes.items():
            key = "model.layers.%d.%s" % (layer, part)
            base.append((key + ".weight", "BF16", [n_out, n_in], 2 * n_out * n_in))
            factors.append(("base_model.model.%s.lora_A.weight" % key, "F32", [RANK, n_in], 4 * RANK * n_in))
            factors.append(("base_model.model.%s.lora_B.weight" % key, "F32", [n_out, RANK], 4 * RANK * n_out))
        base += [("model.layers.%d.%s_layernorm.weight" % (layer, part), "BF16", [hidden], 2 * hidden) for part in ("input", "post_attention")]
    base += [("model.norm.weight", "BF16", [hidden], 2 * hidden), ("lm_head.weight", "BF16", [WORDS, hidden], 2 * WORDS * hidden)]
    for folder in (model, adapter):
        os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(model, "model.safetensors"), base, fill)
    write_safetensors(os.path.join(adapter, "adapter_model.safetensors"), factors, fill)
    with open(os.path.join(model, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": 16,
                   "num_key_value_heads": 16, "num_hidden_layers": n_layers, "vocab_size": WORDS, "tie_word_embeddings": False, "dtype": "bfloat16"}, file)
    with open(os.path.join(adapter, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "target_modules": [part.split(".")[1] for part in shapes]}, file)
    return model, os.path.join(model, "model.safetensors"), adapter


def processor(bench, name, baseline, ours):
    """A row of processor time, as a ratio, and of peak memory."""
    rows = [[run_accounted(argv) for argv in (baseline, ours)] for _ in range(bench.n_runs)]
    base, mine = (statistics.median(row[i][2] for row in rows) for i in (0, 1))
    bench.row(name, "%.2f s" % base, "%.2f s" % mine, "%.2f" % (mine / base), "%.0f MB" % max(row[1][1] for row in rows))


def beside_library(bench, name, code, arguments, ours):
    """The same beside a library, without its start."""
    if not os.path.exists(os.path.join(LIBRARIES, "complete")):
        return
    command = [os.path.join(LIBRARIES, "bin/python"), "-W", "ignore", "-c", code, *arguments]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.path.abspath(os.path.join(LIBRARIES, "empty")), "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    rows = []
    for _ in range(3):
        theirs = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.splitlines()[-1].split()
        run(["sync"])  # what the library has left in memory is not written while ours runs
        rows.append((float(theirs[0]), float(theirs[1]), *run_accounted(ours)[1:]))
    theirs, memory, ours_memory, mine = (statistics.median(column) for column in zip(*rows))
    bench.row(name, "%.2f s, %.0f MB" % (theirs, memory), "%.2f s" % mine, "%.2f" % (mine / theirs), "%.0f MB" % ours_memory)


def mounted_reads(bench, base, *options):
    with bench.mounted(base, *options):
        return python_seconds(RANDOM_READS, os.path.join(bench.mnt, "model/layers/0/mlp/up_proj/weight"))


def listed(bench, base, *options, recursive=False):
    with bench.mounted(base, *options) as took:
        return took + run(["ls", *["-lR"] * recursive, bench.mnt])


def arithmetic(bench):
    # Any bytes but those of NaN and infinity: each 16 bits are below 0x40.
    fill = bytes(byte & 0x3f for byte in os.urandom(MIB))
    model, base, adapter = write_model(bench, "model", 4 if bench.quick else 15, 1536, 4096, fill)
    second, out, copy = bench.path("second/model.safetensors"), bench.path("out.safetensors"), bench.path("copy")
    run(["cp", "-r", model, bench.path("second")])
    convert = [bench.program, "convert", "--overwrite"]
    with_adapter, mean = [*convert, "--lora=" + adapter, base, out], [*convert, "--average=" + second, base, out]
    bench.section("Adapters and sums: processor time, and the most memory; the ratio is to the baseline",
                  ["job", "baseline", "weightfs", "ratio", "memory"])
    processor(bench, "`convert --lora`, rank 16 on 7 projections, against `cp` of the base", ["cp", base, copy], with_adapter)
    beside_library(bench, "the same against peft without its imports", PEFT, [model, adapter, bench.path("theirs")], with_adapter)
    both = ["sh", "-c", 'cp "$0" "$2" && cp "$1" "$3" && sync "$2" "$3"', base, second, copy, copy + "-2"]
    processor(bench, "`convert --average` of two, against `cp` and `sync` of both", both, mean)
    beside_library(bench, "the same against `linear` of mergekit without its imports", MERGEKIT, [model, bench.path("second"), bench.path("theirs")], mean)
    dequantize(bench, convert)
    bench.section("The same by the clock", ["job", "baseline", "weightfs", "ratio"])
    bench.compare("`convert --average` of two, against `cp` and `sync` of both", lambda: run(both), lambda: run(mean))
    bench.section("A mount with the adapter, beside one without", ["job", "without", "with", "ratio"])
    bench.compare("500 reads of 4 KiB at random places of one tensor", lambda: mounted_reads(bench, base), lambda: mounted_reads(bench, base, "lora=" + adapter))
    for folder in ("model", "second", "theirs"):
        shutil.rmtree(bench.path(folder), ignore_errors=True)
    _, base, adapter = write_model(bench, "large", 32, 4096, 11008, None)
    for name, recursive in (("mount and `ls`", False), ("mount and `ls -lR`", True)):
        bench.compare(name + ", layout of 7B", lambda: listed(bench, base, recursive=recursive), lambda: listed(bench, base, "lora=" + adapter, recursive=recursive))

# SPDX-License-Identifier: MIT
"""Adapters and sums: the layout of a small Llama (15 layers, hidden size 1536, BF16) with an adapter of rank 16 on seven projections of each."""
import json
import os
import statistics

from benchlib.make import MIB, write_safetensors
from benchlib.measure import has_module, python_seconds, run, run_accounted

HIDDEN, INNER, WORDS, RANK = 1536, 4096, 32000, 16
PROJECTIONS = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (HIDDEN, HIDDEN),
               "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}

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


def write_model(bench, n_layers):
    """Paths of the base and of the directory of the adapter."""
    base, factors = [("model.embed_tokens.weight", "BF16", [WORDS, HIDDEN], 2 * WORDS * HIDDEN)], []
    for layer in range(n_layers):
        for name, (n_out, n_in) in PROJECTIONS.items():
            key = "model.layers.%d.%s" % (layer, name)
            base.append((key + ".weight", "BF16", [n_out, n_in], 2 * n_out * n_in))
            factors.append(("base_model.model.%s.lora_A.weight" % key, "F32", [RANK, n_in], 4 * RANK * n_in))
            factors.append(("base_model.model.%s.lora_B.weight" % key, "F32", [n_out, RANK], 4 * RANK * n_out))
    adapter = bench.path("adapter")
    os.makedirs(adapter, exist_ok=True)
    # Any bytes but those of NaN and infinity: each 16 bits are below 0x40.
    fill = bytes(byte & 0x3f for byte in os.urandom(MIB))
    write_safetensors(bench.path("base.safetensors"), base, fill)
    write_safetensors(os.path.join(adapter, "adapter_model.safetensors"), factors, fill)
    with open(os.path.join(adapter, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK}, file)
    return bench.path("base.safetensors"), adapter


def processor(bench, name, baseline, ours):
    """A row of processor time, as a ratio, and of peak memory."""
    rows = [[run_accounted(argv) for argv in (baseline, ours)] for _ in range(bench.n_runs)]
    base, mine = (statistics.median(row[i][2] for row in rows) for i in (0, 1))
    bench.row(name, "%.2f s" % base, "%.2f s" % mine, "%.2f" % (mine / base), "%.0f MB" % max(row[1][1] for row in rows))


def mounted_reads(bench, base, *options):
    with bench.mounted(base, *options):
        return python_seconds(RANDOM_READS, os.path.join(bench.mnt, "model/layers/0/mlp/up_proj/weight"))


def listed(bench, base, *options):
    with bench.mounted(base, *options) as took:
        return took + run(["ls", "-R", bench.mnt])


def arithmetic(bench):
    base, adapter = write_model(bench, 4 if bench.quick else 15)
    second, out, copy = bench.path("second.safetensors"), bench.path("out.safetensors"), bench.path("copy")
    run(["cp", base, second])
    convert = [bench.program, "convert", "--overwrite"]
    bench.section("Adapters and sums: processor time, and the most memory; the ratio is to the baseline",
                  ["job", "baseline", "weightfs", "ratio", "memory"])
    processor(bench, "`convert --lora`, rank 16 on 7 projections, against `cp` of the base", ["cp", base, copy], [*convert, "--lora=" + adapter, base, out])
    processor(bench, "`convert --average` of two, against `cp` of both", ["sh", "-c", 'cp "$0" "$2" && cp "$1" "$2"', base, second, copy],
              [*convert, "--average=" + second, base, out])
    os.unlink(out)
    dequantize(bench, convert)
    bench.section("A mount with the adapter, beside one without", ["job", "without", "with", "ratio"])
    bench.compare("mount and `ls -R`", lambda: listed(bench, base), lambda: listed(bench, base, "lora=" + adapter))
    bench.compare("500 reads of 4 KiB at random places of one tensor", lambda: mounted_reads(bench, base), lambda: mounted_reads(bench, base, "lora=" + adapter))
    for path in (base, second, copy):
        os.unlink(path)

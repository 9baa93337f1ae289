# SPDX-License-Identifier: MIT
"""Checkpoints to measure with, written without the program."""
import json
import os
import struct
import zipfile

MIB = 1 << 20


def write_safetensors(path, tensors, fill=None):
    """tensors: [(name, dtype, shape, n_bytes)]; the data is a repeated pattern, or a hole."""
    offset, entries = 0, []
    for name, dtype, shape, n_bytes in tensors:
        entries.append('%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}'
                       % (json.dumps(name), dtype, json.dumps(shape, separators=(",", ":")), offset, offset + n_bytes))
        offset += n_bytes
    header = ("{" + ",".join(entries) + "}").encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        if fill is None:
            file.truncate(8 + len(header) + offset)
        else:
            left = offset
            while left:
                left -= file.write(fill[:min(left, len(fill))])
        file.flush()
        os.fsync(file.fileno())
    return 8 + len(header)


def pickled_text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def write_pth(path, tensors, fill=b""):
    """A PyTorch checkpoint as torch.save makes it: one record a tensor. tensors as above, all F32."""
    parts = [b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x010ctorch\nFloatStorage\nq\x020", pickled_text("storage"), b"q\x030",
             pickled_text("cpu"), b"q\x040ccollections\nOrderedDict\nq\x050}("]
    integer = lambda n: b"K%c" % n if n < 256 else b"M" + struct.pack("<H", n) if n < 65536 else b"J" + struct.pack("<i", n)
    for i, (name, _, shape, n_bytes) in enumerate(tensors):
        strides = [1] * len(shape)
        for k in range(len(shape) - 1, 0, -1):
            strides[k - 1] = strides[k] * shape[k]
        parts.append(b"%sh\x01((h\x03h\x02%sh\x04%stQK\x00(%st(%st\x89h\x05)RtR" % (
            pickled_text(name), pickled_text(str(i)), integer(n_bytes // 4), b"".join(map(integer, shape)),
            b"".join(map(integer, strides))))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", b"".join(parts) + b"u.")
        for i, (_, _, _, n_bytes) in enumerate(tensors):
            file.writestr("archive/data/%d" % i, (fill * (n_bytes // max(len(fill), 1) + 1))[:n_bytes] if fill else bytes(n_bytes))
        file.writestr("archive/version", b"3\n")
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def many_tensors(n, per_dir):
    """n tensors of one F32 in directories of per_dir, named as mixture-of-experts layers are."""
    names = []
    for i in range(n):
        d, k = divmod(i, per_dir)
        names.append("model.layers.%d.mlp.experts.%d.w%02d" % (d // 100, d % 100, k))
    return [(name, "F32", [1], 4) for name in sorted(names)]

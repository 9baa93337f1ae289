/* SPDX-License-Identifier: MIT */
/*
 * Findings: what a loader finds odd about a file that it can read all the same. The severity of
 * each kind is in one table (src/tensor/finding.c).
 */
#ifndef WFS_FINDING_H
#define WFS_FINDING_H

/* How much a finding matters: it never prevents reading. */
enum wfs_severity { WFS_INFO, WFS_LOW, WFS_MEDIUM, WFS_HIGH };

/* Within a format the worst come first: findings of one severity are listed in this order. */
enum wfs_finding_kind {
    WFS_FINDING_OTHER_NAME, /* the name is that of another format */
    /* safetensors */
    WFS_FINDING_ST_TRAILING,
    WFS_FINDING_ST_SHORT,
    WFS_FINDING_ST_OFFSET,
    WFS_FINDING_ST_SIZE,
    WFS_FINDING_ST_DTYPE,
    WFS_FINDING_ST_DUPLICATE,
    WFS_FINDING_ST_PATH, /* a key that a careless tool would follow out of its directory */
    WFS_FINDING_ST_FORM, /* of a tensor's entry: only the reference reads it */
    WFS_FINDING_ST_LEADING,
    WFS_FINDING_ST_PADDING,
    WFS_FINDING_ST_META_DUPLICATE,
    WFS_FINDING_ST_META_EMPTY,
    WFS_FINDING_ST_META_FORMAT,
    WFS_FINDING_ST_DATA_START,
    WFS_FINDING_ST_UNALIGNED,
    WFS_FINDING_ST_HEADER_SIZE,
    WFS_FINDING_ST_SLASH,
    WFS_FINDING_ST_ORDER,
    WFS_FINDING_ST_FIELD,
    WFS_FINDING_ST_EMPTY,
    /* Burnpack */
    WFS_FINDING_BPK_SHORT,
    WFS_FINDING_BPK_SIZE,
    WFS_FINDING_BPK_DTYPE,
    WFS_FINDING_BPK_DUPLICATE,
    WFS_FINDING_BPK_META_DUPLICATE,
    WFS_FINDING_BPK_SCALAR_DUPLICATE,
    WFS_FINDING_BPK_TENSOR_MAX,
    WFS_FINDING_BPK_FILE_MAX,
    WFS_FINDING_BPK_OVERLAP,
    WFS_FINDING_BPK_UNUSED,
    WFS_FINDING_BPK_TRAILING,
    WFS_FINDING_BPK_CBOR_TRAILING,
    WFS_FINDING_BPK_UNALIGNED,
    WFS_FINDING_BPK_FIELD,
    WFS_FINDING_BPK_PACKED,
    WFS_FINDING_BPK_BOOL,
    WFS_FINDING_BPK_SCHEME,
    /* PyTorch */
    WFS_FINDING_PT_CHECKSUM,
    WFS_FINDING_PT_DANGER,
    WFS_FINDING_PT_UNREADABLE,
    WFS_FINDING_PT_MIXED_STORAGE,
    WFS_FINDING_PT_DEPTH,
    WFS_FINDING_PT_REPEATS,
    WFS_FINDING_PT_OBJECT_WEIGHTS,
    WFS_FINDING_PT_VERSION,
    WFS_FINDING_PT_STRAY_RECORDS,
    WFS_FINDING_PT_MORE_VALUES,
    WFS_FINDING_PT_EXTENSION,
    WFS_FINDING_PT_TEXT,
    WFS_FINDING_PT_LONG_STORAGE,
    WFS_FINDING_PT_KEY_CLASH,
    WFS_FINDING_PT_KEY_DUPLICATE,
    WFS_FINDING_PT_LOOSE,
    WFS_FINDING_PT_LOCAL_HEADER,
    WFS_FINDING_PT_ABSENT,
    WFS_FINDING_PT_TRAILING,
    WFS_FINDING_PT_NO_CHECKSUM,
    /* checkpoints in several files */
    WFS_FINDING_SET_UNREADABLE,
    WFS_FINDING_SET_UNLISTED_KEY,
    WFS_FINDING_SET_OTHER_SHARD,
    WFS_FINDING_SET_STRAY_FILE,
    /* overlays */
    WFS_FINDING_OVERLAY,
    WFS_N_FINDING_KINDS
};

struct wfs_finding {
    enum wfs_severity severity;
    const char *text; /* one line, safe for a terminal */
    enum wfs_finding_kind kind;
};

#endif

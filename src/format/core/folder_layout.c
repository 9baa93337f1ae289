/* SPDX-License-Identifier: MIT */
/*
 * Folders that programs are known to write, as a table of the names by which they are recognised.
 */
#include "format/core/folder.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_FOLDERS = 1000,
    MAX_DEPTH = 3,
    MAX_BELOW = 2000, /* names of a folder below: one with very many files is of data */
};

/* A pattern of the names, or "FOLDER/NAME" of those in a folder. */
struct known {
    const char *mark;
    const char *also;  /* a second mark; NULL: one is enough */
    const char *what;  /* NULL: what the mark is, is loaded */
    const char *parts; /* patterns of what to name instead, "/": folders with checkpoints; NULL:
                          nothing */
};

#define DEEPSPEED                                                                                  \
    "is a DeepSpeed checkpoint, whose parts weightfs does not join: run its zero_to_fp32.py, or "  \
    "name one of the files "
#define DEEPSPEED_UNIVERSAL                                                                        \
    "is a universal DeepSpeed checkpoint with a folder for each parameter, which weightfs does "   \
    "not join"
#define UNREAD ", a format that weightfs does not read"

/*
 * In the order in which they are compared. The names of files that are loaded are in the order of
 * the programs that load them: transformers takes a whole file before an index, diffusers the
 * index.
 */
static const struct known known_first[] = {
    {"latest_universal", NULL, DEEPSPEED_UNIVERSAL, NULL},
    {"zero", "zero/optimizer_state.pt", DEEPSPEED_UNIVERSAL, NULL},
    {"model_[0-9].safetensors", "model.safetensors",
     "has several models of accelerate; name one of them: ", "model*.safetensors"},
    {"pytorch_model_[0-9].bin", "pytorch_model.bin",
     "has several models of accelerate; name one of them: ", "pytorch_model*.bin"},
    {"model.safetensors", NULL, NULL, NULL},
    {"model.safetensors.index.json", NULL, NULL, NULL},
    {"model_index.json", NULL, NULL, NULL},
    {"diffusion_pytorch_model.safetensors.index.json", NULL, NULL, NULL},
    {"diffusion_pytorch_model.safetensors", NULL, NULL, NULL},
    {"pytorch_model.bin", NULL, NULL, NULL},
    {"pytorch_model.bin.index.json", NULL, NULL, NULL},
    {"diffusion_pytorch_model.bin.index.json", NULL, NULL, NULL},
    {"diffusion_pytorch_model.bin", NULL, NULL, NULL},
    {"adapter_model.safetensors", NULL, NULL, NULL},
    {"adapter_model.bin", NULL, NULL, NULL},
    {"adapters.safetensors", NULL, NULL, NULL},
    {"pytorch_lora_weights.safetensors", NULL, NULL, NULL},
    {"pytorch_lora_weights.bin", NULL, NULL, NULL},
    {"open_clip_model.safetensors", NULL, NULL, NULL},
    {"open_clip_pytorch_model.bin", NULL, NULL, NULL},
    {"model_optim_rng.pt", NULL, NULL, NULL},
    {"pytorch_model_fsdp.bin", NULL, NULL, NULL},
    {"pytorch_model_fsdp_[0-9]", NULL,
     "is a checkpoint of accelerate; name the distributed checkpoint in it: ",
     "pytorch_model_fsdp_[0-9]"},
    {"layer_*-model_*-model_states.pt", NULL,
     DEEPSPEED "in it: ", "layer_*-model_*-model_states.pt"},
    {"*mp_rank_*_model_states.pt", NULL, DEEPSPEED "in it: ", "*mp_rank_*_model_states.pt"},
    {"zero_to_fp32.py", NULL, DEEPSPEED "below it", NULL},
    {"latest", "*/*mp_rank_*_model_states.pt", DEEPSPEED "below it", NULL},
    {"consolidated.01.pth", "consolidated.00.pth",
     "has a file for each rank of model parallelism: join=llama reads them as one; or name one of "
     "these files: ",
     "consolidated.[0-9]*.pth"},
    {"common.pt", "*/.zarray", "is a zarr checkpoint of Megatron-core" UNREAD, NULL},
    {"model.pth", "dvae.pth", NULL, NULL}, /* Coqui XTTS */
    {"model.bin", "*vocabulary.*", "is a CTranslate2 model" UNREAD, NULL},
    {"*.onnx", "weights.bin", "is an ONNX model" UNREAD, NULL},
    {"config.cfg", "vocab", "is a spaCy pipeline" UNREAD, NULL},
};

/* Where no file in the folder can be the checkpoint. */
static const struct known known_last[] = {
    {"saved_model.pb", NULL, "is a TensorFlow SavedModel" UNREAD, NULL},
    {"*ckpt*.index", NULL, "is a TensorFlow checkpoint" UNREAD, NULL},
    {"snapshots", NULL, "is an entry of the Hugging Face cache: name a directory in its snapshots/",
     NULL},
    {"models--*", NULL,
     "is a Hugging Face cache: name a directory in the snapshots/ of one of: ", "models--*"},
    {"latest_checkpointed_iteration.txt", "iter_*",
     "is a folder of Megatron-LM checkpoints: name the directory of one iteration: ", "iter_*"},
    {"mp_rank_[0-9]*", NULL,
     "is a checkpoint of old Megatron-LM, in a directory for each rank: options join=REGEX:DIM "
     "read "
     "them as one, or name the file of one rank, model_optim_rng.pt in one of: ",
     "mp_rank_[0-9]*"},
    {"weights", "weights/.metadata",
     "is a checkpoint of NeMo or the like: name the directory weights in it", NULL},
    {".weightfs", ".weightfs/status.json",
     "is a mount of weightfs: name the checkpoint that is mounted, or with its edits a file in "
     ".weightfs/out",
     NULL},
    {"_CHECKPOINT_METADATA", NULL, "is an Orbax checkpoint" UNREAD, NULL},
    {"*/_CHECKPOINT_METADATA", NULL, "is a folder of Orbax checkpoints" UNREAD, NULL},
    {"checkpoint", "*/.zarray", "is a T5X checkpoint" UNREAD, NULL},
    {"*.pth.tar", NULL, "has checkpoints of a training run; name one of them: ", "*.pth.tar"},
    {"*", NULL, "is a directory with checkpoints in folders; name one of them: ", "/"},
    {"*.onnx", NULL, "is an ONNX model" UNREAD, NULL},
    {"*/*.onnx", NULL, "has ONNX models" UNREAD, NULL},
    {"openvino_model.xml", NULL, "is an OpenVINO model" UNREAD, NULL},
    {"*.keras", NULL, "has files of Keras" UNREAD ": ", "*.keras"},
    {"*.h5", NULL, "has HDF5 files" UNREAD ": ", "*.h5"},
    {"*.msgpack", NULL, "has files of Flax" UNREAD ": ", "*.msgpack"},
    {"*.pdparams", NULL, "has files of PaddlePaddle" UNREAD ": ", "*.pdparams"},
    {"*.npz", NULL, "has NumPy archives" UNREAD ": ", "*.npz"},
    {"*.engine", NULL, "has TensorRT engines" UNREAD ": ", "*.engine"},
    {"..", "../snapshots",
     "has the blobs of a Hugging Face cache: name a directory in the snapshots/ beside it", NULL},
    {".cache", ".cache/huggingface/download",
     "has a download by huggingface_hub that is not complete: download it again", NULL},
};

/* Of a folder with ranks of model parallelism: the first one. */
static const char *const first_ranks[] = {"consolidated.00.pth", "consolidated.00.pt",
                                          "mp_rank_00/model_optim_rng.pt",
                                          "mp_rank_00_model_states.pt"};
enum { N_FIRST_RANKS = sizeof(first_ranks) / sizeof(*first_ranks) };

const char *folder_layout_file(size_t i)
{
    for (size_t j = 0; j < sizeof(known_first) / sizeof(*known_first); j++) {
        const struct known *known = &known_first[j];
        if (known->what == NULL && known->also == NULL && i-- == 0)
            return known->mark;
    }
    return i < N_FIRST_RANKS ? first_ranks[i] : NULL;
}

/* Returns whether the folder, whose path ends with a slash, has a file of that name: a mount does
 * not list its own. -ENOMEM. */
static int has_name(const char *folder, const char *name)
{
    autofree char *path = NULL;
    if (asprintf(&path, "%s%s", folder, name) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    return access(path, F_OK) == 0;
}

const char *folder_first_rank(const char *folder)
{
    for (size_t i = 0; i < N_FIRST_RANKS; i++)
        if (has_name(folder, first_ranks[i]) > 0)
            return first_ranks[i];
    return NULL;
}

const char *folder_rank_of_url(const char *url)
{
    for (size_t i = 0; i < N_FIRST_RANKS; i++) {
        const size_t n = strlen(url), n_file = strlen(first_ranks[i]);
        if (n > n_file && url[n - n_file - 1] == '/' &&
            strcmp(url + n - n_file, first_ranks[i]) == 0)
            return first_ranks[i];
    }
    return NULL;
}

bool folder_is_state(const char *name)
{
    static const char *const patterns[] = {
        "optimizer*",
        "optim.pt",
        "optim_world_size_*",
        "*_optim_states.pt",
        "distrib_optim.pt",
        "scheduler*",
        "random_states_*",
        "rng_state*",
        "extra_state_*",
        "scaler.pt",
        "custom_checkpoint_*",
        "training_args.bin",
        "trainer_state.json",
        "train.pt",
        "recipe_state*",
        "adapter_[0-9]*.pt",
        "speakers*.pth",
        "mel_stats.pth",
        "meta.pt",
        "common.pt",
        "openvino_model.bin",
    };
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        if (fnmatch(patterns[i], name, 0) == 0)
            return true;
    return false;
}

/* Lists what is in a folder of a folder, whose path with a slash is *ret_path, malloc'ed. A file,
 * or one that cannot be listed, is empty. -ENOMEM. */
static int list_below(const char *folder, const char *name, char **ret_path,
                      struct folder_names *ret)
{
    if (asprintf(ret_path, "%s%s/", folder, name) < 0) {
        *ret_path = NULL;
        return -ENOMEM;
    }
    return folder_names_list(ret, *ret_path, MAX_BELOW, NULL) == -ENOMEM ? -ENOMEM : 0;
}

/* Adds the names that match. -ENOMEM. */
static int add_matches(const struct folder_names *names, const char *pattern,
                       struct folder_names *ret)
{
    int code = 0;
    for (size_t i = 0; i < names->n && code == 0; i++)
        if (fnmatch(pattern, names->names[i], FNM_PERIOD) == 0)
            code = folder_names_add(ret, names->names[i]);
    return code;
}

/* Returns whether a name matches a mark: 1, 0. -ENOMEM. Recursion ends with the mark. */
static int has_mark(const char *folder, const struct folder_names *names, const char *mark)
{
    if (mark[0] == '.')
        return has_name(folder, mark);
    const char *slash = strchr(mark, '/');
    autofree char *front = slash == NULL ? strdup(mark) : strndup(mark, (size_t)(slash - mark));
    int code = front == NULL ? -ENOMEM : 0;
    for (size_t i = 0, n_folders = 0; i < names->n && code == 0 && n_folders < MAX_FOLDERS; i++) {
        if (fnmatch(front, names->names[i], FNM_PERIOD) != 0)
            continue;
        if (slash == NULL)
            return 1;
        n_folders++;
        cleanup(folder_names_done) struct folder_names below = {0};
        autofree char *path = NULL;
        code = list_below(folder, names->names[i], &path, &below);
        if (code == 0)
            code = has_mark(path, &below, slash + 1);
    }
    return code;
}

/* Returns whether a folder has a checkpoint itself, by the names in it. */
static bool has_checkpoint(const struct folder_names *names,
                           bool (*names_checkpoint)(const char *path))
{
    for (size_t i = 0; i < names->n; i++)
        if (fnmatch("__*.distcp", names->names[i], 0) == 0 ||
            (names->names[i][0] != '.' && names_checkpoint(names->names[i]) &&
             !folder_is_state(names->names[i])))
            return true;
    return false;
}

struct search {
    const char *top;
    bool (*names_checkpoint)(const char *path);
    size_t n_folders; /* that were looked into */
    struct folder_names *found;
};

static int search_below(struct search *search, const char *folder, const struct folder_names *names,
                        unsigned n_depth)
{
    int code = 0;
    for (size_t i = 0; i < names->n && code == 0 && search->n_folders < MAX_FOLDERS; i++) {
        cleanup(folder_names_done) struct folder_names below = {0};
        autofree char *path = NULL;
        if (names->names[i][0] == '.' || folder_is_state(names->names[i]))
            continue;
        code = list_below(folder, names->names[i], &path, &below);
        search->n_folders += below.n > 0;
        if (code == 0 && has_checkpoint(&below, search->names_checkpoint))
            code = folder_names_add(search->found, path + strlen(search->top));
        else if (code == 0 && n_depth > 1)
            code = search_below(search, path, &below, n_depth - 1);
    }
    return code;
}

int folder_find_below(const char *folder, const struct folder_names *names, unsigned n_depth,
                      bool (*names_checkpoint)(const char *path), struct folder_names *ret)
{
    struct search search = {folder, names_checkpoint, 0, ret};
    return search_below(&search, folder, names, n_depth);
}

/* Compares with one row. 1, 0; -ENOMEM. */
static int compare(const struct known *known, const char *folder, const struct folder_names *names,
                   bool (*names_checkpoint)(const char *path), struct folder_layout *ret)
{
    int code = has_mark(folder, names, known->mark);
    if (code > 0 && known->also != NULL)
        code = has_mark(folder, names, known->also);
    if (code > 0 && known->parts != NULL) {
        code = strcmp(known->parts, "/") == 0
                   ? folder_find_below(folder, names, MAX_DEPTH, names_checkpoint, &ret->choice)
                   : add_matches(names, known->parts, &ret->choice);
        code = code < 0 ? code : ret->choice.n > 0;
    }
    if (code > 0) {
        ret->what = known->what;
        ret->take = known->what == NULL ? known->mark : NULL;
    }
    return code;
}

int folder_layout_find(const char *folder, const struct folder_names *names, bool is_last,
                       bool (*names_checkpoint)(const char *path), struct folder_layout *ret)
{
    const struct known *known = is_last ? known_last : known_first;
    const size_t n = is_last ? sizeof(known_last) / sizeof(*known_last)
                             : sizeof(known_first) / sizeof(*known_first);
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++)
        code = compare(&known[i], folder, names, names_checkpoint, ret);
    return code;
}

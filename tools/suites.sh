# SPDX-License-Identifier: MIT
# Gets the test suites of other projects for tools/test --peers; sourced, not run. What cannot be had is left out with a line; the
# tests that need it skip then, except in CI.

# get_torch_suite FOLDER: the sources of Debian's torch, of the same version as the python3-torch of this system.
get_torch_suite() {
    local folder=$1 state=$1/apt options
    [ ! -f "$folder/torch/test/test_serialization.py" ] || return 0
    options=(-qq -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache" -o APT::Sandbox::User=root)
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$folder/torch" &&
        echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian" \
            "$(. /etc/os-release && echo "$VERSION_CODENAME") main" >"$state/sources.list" &&
        apt-get "${options[@]}" update &&
        (cd "$state" && apt-get "${options[@]}" source --download-only --tar-only pytorch) &&
        tar -xf "$state"/pytorch_*.orig.tar.* -C "$folder/torch" --strip-components=1 --wildcards '*/test/test_serialization.py' &&
        rm -rf "$state"
}

# get_safetensors_suite FOLDER PYTHON: the sources of the safetensors package that this python has.
get_safetensors_suite() {
    local folder=$1 python=$2 version
    [ ! -d "$folder/safetensors/bindings/python/tests" ] || return 0
    version=$("$python" -c 'import safetensors; print(safetensors.__version__)') &&
        mkdir -p "$folder/safetensors" &&
        "$python" -m pip download -q --disable-pip-version-check --no-deps --no-binary safetensors -d "$folder" \
            "safetensors==$version" &&
        tar -xf "$folder/safetensors-$version.tar.gz" -C "$folder/safetensors" --strip-components=1 &&
        rm "$folder/safetensors-$version.tar.gz"
}

# get_file_system_suites FOLDER: pjdfstest and fsx, built from crates.io. Needs a Rust newer than Debian 12's.
get_file_system_suites() {
    local folder=$1 cargo
    [ ! -x "$folder/rust/bin/pjdfstest" ] || return 0
    cargo=$(PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin command -v cargo) &&
        PATH=$(dirname "$cargo"):$PATH "$cargo" install --quiet --debug --locked --root "$folder/rust" fsx@0.3.2 pjdfstest@0.2.2
}

# get_suites FOLDER PYTHON
get_suites() {
    say "test suites of torch, safetensors and file systems, in $1"
    get_torch_suite "$1" || echo "cannot get the test suite of torch; its tests are skipped"
    get_safetensors_suite "$1" "$2" || echo "cannot get the test suite of safetensors; its tests are skipped"
    get_file_system_suites "$1" || echo "cannot build pjdfstest and fsx (they need Rust 1.85); their tests are skipped"
}

# get_libraries FOLDER: the libraries that make and merge adapters, in a virtual environment of its own, with a torch that computes on the
# processor. The torch of PyPI is linked with gigabytes of NVIDIA's libraries, which it does not call where there is no such device: libraries
# without any code take their place, in FOLDER/empty (LD_LIBRARY_PATH).
get_libraries() {
    local folder=$1 empty=$1/empty name
    [ ! -f "$folder/complete" ] || return 0
    say "peft, transformers, diffusers, lycoris-lora, mergekit and a torch for them, in $folder"
    rm -rf "$folder"
    /usr/bin/python3 -m venv "$folder" &&
        "$folder/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-compile torch==2.15.0 peft==0.21.2 \
            transformers==5.24.0 diffusers==0.42.0 lycoris-lora==4.1.3 mergekit==0.1.5 accelerate &&
        "$folder/bin/python" -m pip install -q --disable-pip-version-check --no-compile click einops filelock fsspec huggingface-hub \
            immutables importlib-metadata jinja2 networkx numpy pillow psutil pydantic pyyaml regex requests safetensors setuptools sympy tokenizers \
            toml tqdm typer typing-extensions &&
        mkdir "$empty" || return 1
    find "$folder" -path '*/torch/lib/*.so*' -exec nm -D --undefined-only {} + | awk '{ sub("@.*", "", $2); print $2 }' | sort -u |
        grep -E '^_*(cu|CU|nccl|nvrtc|nvshmem|nvJit|pnccl)' | sed 's/.*/long &(void) { return 100; }/' >"$empty/empty.c" || return 1
    cc -w -shared -fPIC -o "$empty/libempty.so" "$empty/empty.c" || return 1
    for name in $(find "$folder" -path '*/torch/lib/*.so*' -exec objdump -p {} + | awk '$1 == "NEEDED" { print $2 }' | sort -u |
        grep -E '^lib(cu|nv|nccl)'); do
        cc -shared -Wl,-soname,"$name" -Wl,--no-as-needed -Wl,-rpath,'$ORIGIN' -o "$empty/$name" -L"$empty" -lempty -x c /dev/null || return 1
    done
    LD_LIBRARY_PATH=$empty "$folder/bin/python" -c 'import torch; torch.ones(2) @ torch.ones(2)' && touch "$folder/complete"
}

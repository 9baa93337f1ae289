# SPDX-License-Identifier: MIT
# What tools/try and tools/test share; sourced, not run.
# Debian's programs, whatever else comes first on the user's PATH.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset PYTHONHOME PYTHONPATH

BUILD_PACKAGES=(gcc libc6-dev meson ninja-build pkgconf libcbor-dev libfuse3-dev libjansson-dev libpcre2-dev libseccomp-dev libxxhash-dev zlib1g-dev fuse3)

say() {
    printf '\n== %s\n' "$*"
}

# Runs as root: as it is, or with sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif [ -x /usr/bin/sudo ]; then
        sudo -n "$@"
    else
        echo "needs the rights of root, and there is no sudo: $*" >&2
        return 1
    fi
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs the packages that are missing, if any.
install_packages() {
    local package missing=()
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 "${missing[@]}" </dev/null
}

# build FOLDER [MESON OPTION...]: configures if needed, then compiles.
build() {
    local folder=$1
    shift
    say "building in $folder"
    if [ -f "$folder/build.ninja" ]; then
        meson setup --reconfigure "$folder" "$@" >"$folder/setup.log" || { cat "$folder/setup.log"; return 1; }
    else
        meson setup "$folder" "$@"
    fi
    ninja -C "$folder" --quiet
}

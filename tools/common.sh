# SPDX-License-Identifier: MIT
# Functions shared by tools/try and tools/test; sourced, not run.
# Use Debian's programs, whatever else is on the user's PATH.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset PYTHONHOME PYTHONPATH

BUILD_PACKAGES=(gcc libc6-dev meson ninja-build pkgconf libcbor-dev libcurl4-openssl-dev libfuse3-dev libjansson-dev libmpack-dev libpcre2-dev libseccomp-dev libssl-dev libxxhash-dev zlib1g-dev fuse3)

say() {
    printf '\n== %s\n' "$*"
}

# Runs a command as root, directly or with sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Succeeds if as_root can work without asking for a password.
can_be_root() {
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs the packages that are missing, if any; reports what to run if that is impossible.
install_packages() {
    local package hint='' missing=()
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! can_be_root; then
        ! command -v sudo >/dev/null || hint="run 'sudo -v' first, or "
        echo "missing packages; ${hint}run as root: apt-get install ${missing[*]}" >&2
        return 1
    fi
    say "installing ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 "${missing[@]}" </dev/null
}

# build FOLDER [MESON OPTION...]: configures the build directory if needed, then compiles.
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

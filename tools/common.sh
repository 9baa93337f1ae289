# SPDX-License-Identifier: MIT
# Functions shared by tools/try and tools/test; sourced, not run.
# Use Debian's programs, whatever else is on the user's PATH.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset PYTHONHOME PYTHONPATH

BUILD_PACKAGES=(ca-certificates gcc libc6-dev meson ninja-build pkgconf libcbor-dev libcurl4-openssl-dev libfuse3-dev libjansson-dev libmpack-dev libpcre2-dev libseccomp-dev nettle-dev libxxhash-dev zlib1g-dev fuse3)

say() {
    printf '\n== %s\n' "$*"
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Runs a command line of the shell as root: directly, or with sudo, which asks for a password only where it can be typed.
as_root() {
    local sudo=(sudo)
    if [ "$(id -u)" = 0 ]; then
        sudo=()
    elif ! has_terminal; then
        sudo=(sudo -n)
    fi
    "${sudo[@]}" sh -c "$1" </dev/null
}

has_terminal() {
    { : </dev/tty; } 2>/dev/null
}

# fusermount3, by which ordinary users mount, cannot unmount without it. systemd makes this link at each start; bare systems lack it.
has_mount_table() {
    [ "$(id -u)" = 0 ] || [ -e /etc/mtab ]
}

# Installs what is missing, with one call of sudo if needed, or prints what to run as root.
install_packages() {
    local package tasks='' missing=()
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        if ! command -v apt-get >/dev/null; then
            echo "this script installs packages of Debian only; install the equivalents of these, and build by hand (see README.md): ${missing[*]}" >&2
            return 1
        fi
        tasks="apt-get -o DPkg::Lock::Timeout=600 update -qq && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -qq -y --no-install-recommends ${missing[*]}"
    fi
    has_mount_table || tasks+="${tasks:+ && }ln -s ../proc/self/mounts /etc/mtab"
    [ -n "$tasks" ] || return 0
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "there is no sudo; run as root: $tasks" >&2
        return 1
    fi
    say "as root: $tasks"
    as_root "$tasks" || { echo "this failed; run as root: $tasks" >&2; return 1; }
}

# configure FOLDER [MESON OPTION...]: configures the build directory if needed.
configure() {
    local folder=$1
    shift
    say "building in $folder"
    if [ -f "$folder/build.ninja" ]; then
        meson setup --reconfigure "$folder" "$@" >"$folder/setup.log" || { cat "$folder/setup.log"; return 1; }
    else
        meson setup "$folder" "$@"
    fi
}

# build FOLDER [MESON OPTION...]: configures the build directory if needed, then compiles everything.
build() {
    configure "$@"
    ninja -C "$1" --quiet
}

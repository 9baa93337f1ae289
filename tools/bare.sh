# SPDX-License-Identifier: MIT
# Bare Debian systems, for tools/package and tools/wheel; sourced, not run. Works in $where, as root.

# enter_namespace ARGUMENT...: what is mounted in a bare system goes away with this process.
enter_namespace() {
    [ -n "${WFS_HAS_NAMESPACE:-}" ] || exec unshare --mount --propagation private env WFS_HAS_NAMESPACE=1 "$0" "$@"
}

# enter_bare_system SUITE [PACKAGE...]: a new bare system in $root, from a tar archive that is kept. It is a mount, so that there can be
# mount namespaces in it, with terminals. pip trusts there what it trusts here.
enter_bare_system() {
    local suite=$1 packages
    shift
    packages=$(IFS=,; echo "$*")
    local archive=$where/$suite-$(cksum <<<"$packages" | cut -d' ' -f1).tar
    umount -q --recursive "$root" || true
    rm -rf "$root"
    mkdir -p "$root"
    mount --bind "$root" "$root"
    if [ ! -e "$archive" ]; then
        mmdebstrap --variant=minbase ${packages:+--include="$packages"} "$suite" "$where/new.tar"
        mv "$where/new.tar" "$archive"
    fi
    tar -C "$root" -xf "$archive"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/certificates-of-host.crt"
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
    touch "$root/dev/fuse"
    mount --bind /dev/fuse "$root/dev/fuse"
    mount -t proc proc "$root/proc"
    mkdir -p "$root/dev/pts"
    mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
    ln -sf pts/ptmx "$root/dev/ptmx"
}

in_bare_system() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PIP_CERT=/etc/certificates-of-host.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
        DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-}" "$@"
}

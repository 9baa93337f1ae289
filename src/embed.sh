# SPDX-License-Identifier: MIT
# embed.sh MAP ARCHIVE OUTPUT: makes one object of an archive, in which only what the map has in its first version is a global name.
set -eu
trap 'rm -f "$3.o" "$3.names"' EXIT
sed -n '/^WEIGHTFS_PRIVATE/q; s/^ *\(wfs_[a-z_]*\);$/\1/p' "$1" > "$3.names"
ld -r -o "$3.o" --whole-archive "$2"
objcopy --keep-global-symbols="$3.names" "$3.o"
rm -f "$3"
ar rcs "$3" "$3.o"

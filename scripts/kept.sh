# What was installed for one checkout, kept for the next: in ~/.cache/harrier, if somebody has made that
# folder. Read with `. "$(dirname -- "$0")/kept.sh"`. Nothing needs it: what is not there is installed anew.

kept=${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/harrier

# take NAME TO: puts the file or folder that was kept under a name, which says a version, in the place of TO.
# Returns 1 where there is none.
take() {
    [ -e "$kept/$1" ] || return 1
    rm -rf "$2"
    duplicate "$kept/$1" "$2"
}

# keep NAME FROM: keeps a file or folder under a name, unless something is. Where it cannot be kept, it is
# not.
keep() {
    if [ -d "$kept" ] && [ ! -e "$kept/$1" ]; then
        duplicate "$2" "$kept/$1" || true
    fi
}

# duplicate FROM TO: TO is complete then, or not there, and 1 is returned. Files are the same on the disk
# where they can be: nobody writes into them.
duplicate() {
    part=$2.part-$$
    if { cp -al "$1" "$part" || { rm -rf "$part" && cp -a "$1" "$part"; }; } 2>/dev/null &&
        mv -T "$part" "$2" 2>/dev/null; then
        return 0
    fi
    rm -rf "$part"
    return 1
}

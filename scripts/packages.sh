# Packages of the system, for scripts that need some; read with `. "$(dirname -- "$0")/packages.sh"`.
#
# A script that needs some prints those that are missing when it is called with --packages: scripts/install.sh
# asks all of them first, and installs the lot in one go.

# Who installs packages holds a lock on this folder, which is there wherever apt-get is, and which everybody
# may open.
packages_folder=/var/lib/apt

# install_packages PACKAGE...: as root, or with sudo without a password. Says on standard error why not, and
# returns 1 then. One process at a time: another waits, and finds what this one has installed.
install_packages() {
    if [ -d "$packages_folder" ]; then
        (
            flock 8
            install_locked "$@"
        ) 8<"$packages_folder"
    else
        install_locked "$@"
    fi
}

# install_locked PACKAGE...: the same for whoever holds the lock, as descriptor 8.
install_locked() {
    script=${0##*/}
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "${script%.sh}: there is no apt-get to install $* with" >&2
        return 1
    fi
    absent=
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) in
            ii*) ;;
            *) absent="$absent $package" ;;
        esac
    done
    [ -n "$absent" ] || return 0
    if [ "$(id -u)" -eq 0 ]; then
        as_root="env DEBIAN_FRONTEND=noninteractive"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n env DEBIAN_FRONTEND=noninteractive"
    else
        echo "${script%.sh}: may not install$absent (neither root nor sudo without a password)" >&2
        return 1
    fi
    # Some packages bring a server, which would be started; the policy below forbids it to. The package lists
    # may be fresh enough; if not, they are fetched and it is tried again. Somebody else's dpkg, as of
    # automatic upgrades, is waited for.
    # shellcheck disable=SC2086 # one word for each package
    $as_root sh -c '
        set -e
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            printf "#!/bin/sh\nexit 101\n" >"$policy"
            chmod +x "$policy"
            trap "rm -f $policy" EXIT
        fi
        install() {
            apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$@" >/dev/null
        }
        install "$@" 2>/dev/null || { apt-get update -qq >/dev/null 2>&1 && install "$@"; }' sh $absent 8<&-
}

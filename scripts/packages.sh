# Packages of the system, for scripts that need some; read with `. "$(dirname -- "$0")/packages.sh"`.

# install_packages PACKAGE...: as root, or with sudo without a password. Says on standard error why not, and returns 1 then.
install_packages() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" -eq 0 ]; then
        as_root="env DEBIAN_FRONTEND=noninteractive"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n env DEBIAN_FRONTEND=noninteractive"
    else
        script=${0##*/}
        echo "${script%.sh}: may not install $* (neither root nor sudo without a password)" >&2
        return 1
    fi
    # Some packages bring a server, which would be started; the policy below forbids it to. The package lists may be fresh enough; if
    # not, they are fetched and it is tried again.
    $as_root sh -c '
        set -e
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            printf "#!/bin/sh\nexit 101\n" >"$policy"
            chmod +x "$policy"
            trap "rm -f $policy" EXIT
        fi
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
            { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }' sh "$@"
}

# Environments of Python, for scripts that need some. Read with `. "$(dirname -- "$0")/python.sh"` behind
# kept.sh, where $checkout is the root of the checkout.
#
# uv, which is got from PyPI with pip, fills them: it takes a quarter of pip's time, and keeps in its cache
# what several of them have. Where it cannot be had, or cannot do it, pip does.

uv_version=0.13.8
uv=$checkout/.harrier/uv/uv-$uv_version

# environment FOLDER MODULES ARGUMENT...: makes an environment anew, with the packages that the arguments
# name, as for `pip install`, and imports the modules, which are words. Wheels alone, because to build one
# takes longer than all the tests. Returns 1 if it cannot.
environment() {
    made=$1
    modules=$2
    shift 2
    rm -rf "$made"
    if ! command -v python3 >/dev/null 2>&1; then
        script=${0##*/}
        echo "${script%.sh}: python3 is not installed" >&2
        return 1
    fi
    mkdir -p "${made%/*}"
    python=$(python3 -c 'import sys; print(sys.executable)')
    if ! { need_uv && run_uv venv --no-project --python "$python" "$made" &&
        run_uv pip install --python "$made/bin/python3" --only-binary :all: "$@"; }; then
        rm -rf "$made"
        python3 -m venv "$made" >&2 || return 1
        run_pip "$made" "$@" || return 1
    fi
    import "$made" "$modules"
}

# import FOLDER MODULES: imports modules of an environment.
import() {
    # Python compiles what is imported, and keeps that: the rest, most of it tests of the packages' own, need
    # not be compiled.
    # shellcheck disable=SC2086 # one word for each module
    env -u PYTHONDONTWRITEBYTECODE "$1/bin/python3" -W ignore \
        -c 'import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]' $2 >&2
}

# build FOLDER ARGUMENT...: adds packages to an environment of which there are no wheels.
build() {
    made=$1
    shift
    if [ -x "$uv" ]; then
        run_uv pip install --python "$made/bin/python3" "$@"
    else
        "$made/bin/python3" -m pip install --quiet --disable-pip-version-check --no-compile "$@" >&2
    fi
}

# add FOLDER ARGUMENT...: adds packages to an environment.
add() {
    made=$1
    shift
    if [ -x "$uv" ]; then
        run_uv pip install --python "$made/bin/python3" --only-binary :all: "$@"
    else
        run_pip "$made" "$@"
    fi
}

# run_pip FOLDER ARGUMENT...
run_pip() {
    made=$1
    shift
    "$made/bin/python3" -m pip install --quiet --disable-pip-version-check --no-compile \
        --only-binary :all: "$@" >&2
}

# It reads none of pip's settings: the index that somebody has set for pip, and the certificates, are handed
# on.
run_uv() (
    index=${PIP_INDEX_URL:-$(sed -n 's/^ *index-url *[=:] *//p' /etc/pip.conf "${HOME-}/.pip/pip.conf" \
        "${XDG_CONFIG_HOME:-${HOME-}/.config}/pip/pip.conf" "${PIP_CONFIG_FILE:-/dev/null}" 2>/dev/null |
        tail -n 1)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    [ -z "${PIP_CERT-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
    if [ -z "${UV_CACHE_DIR-}" ]; then
        UV_CACHE_DIR=$checkout/.harrier/uv/cache
        [ ! -d "$kept" ] || UV_CACHE_DIR=$kept/uv-cache
        export UV_CACHE_DIR
    fi
    "$uv" --quiet "$@" >&2
)

need_uv() {
    [ ! -x "$uv" ] || return 0
    mkdir -p "${uv%/*}"
    (
        flock 7
        [ -x "$uv" ] || take "uv-$uv_version" "$uv" || get_uv
    ) 7>"$checkout/.harrier/uv.lock"
}

get_uv() {
    new=$checkout/.harrier/uv/new
    rm -rf "$new"
    if PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-compile \
        --no-deps --only-binary :all: --target "$new" "uv==$uv_version" >&2 &&
        "$new/bin/uv" --version >/dev/null; then
        mv "$new/bin/uv" "$uv"
        keep "uv-$uv_version" "$uv"
    fi
    rm -rf "$new"
    [ -x "$uv" ]
}

# Sourced by the set-up scripts: what they share to install Debian packages where rights allow it.

# One clear line, then the end. Set-up errors go to standard error: standard output is the answer.
fail() {
    echo "headway: $*" >&2
    exit 1
}

can_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Runs a command in silence; its output is shown only when it fails.
quietly() {
    local log code=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null || code=$?
    if [ "$code" != 0 ]; then cat "$log" >&2; fi
    rm -f "$log"
    return "$code"
}

# Without the package lists, which a fresh image lacks, nothing can be found. One broken list among
# several is no reason to stop: the package may well be in another.
update_package_lists() {
    quietly as_root apt-get update || echo "headway: apt-get update failed; trying all the same" >&2
}

is_available() {
    apt-get install --simulate "$@" >/dev/null 2>&1
}

install_packages() {
    echo "headway: installing $* from Debian" >&2
    quietly as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends "$@"
}

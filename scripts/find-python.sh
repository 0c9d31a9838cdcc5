#!/usr/bin/env bash
# Prints a Python 3.11 that can make virtual environments; installs Debian's where there is none.
set -euo pipefail
source "$(dirname "$0")/debian.sh"

is_python_3_11() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null
}

# Debian ships venv without ensurepip, which is in a package of its own.
makes_environments() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

# The full path comes last: a version manager's shim can hide Debian's Python behind a broken name.
find_python() {
    local candidate
    for candidate in python3.11 python3 python /usr/bin/python3.11; do
        if is_python_3_11 "$candidate" && makes_environments "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

if find_python; then exit; fi

packages=(python3.11 python3.11-venv)
advice="install it with 'apt-get install ${packages[*]}' as root, then run make again"
can_install || fail "Python 3.11 with venv is missing and cannot be installed from here; $advice"
update_package_lists
is_available "${packages[@]}" || fail "Python 3.11 with venv is missing and this distribution has none; install it from python.org or with pyenv, then run make again"
install_packages "${packages[@]}" || fail "Python 3.11 with venv is missing and apt-get failed; $advice"
find_python || fail "Python 3.11 was installed but does not run"

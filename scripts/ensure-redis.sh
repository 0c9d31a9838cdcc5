#!/usr/bin/env bash
# Prints the path of a redis-server; installs Debian's where there is none and rights allow it.
set -euo pipefail
source "$(dirname "$0")/debian.sh"

find_redis() {
    hash -r # what was not there a moment ago may have been installed
    command -v redis-server
}

if find_redis; then exit; fi

advice="install it with 'apt-get install redis-server' as root"
can_install || fail "redis-server is missing and cannot be installed from here; $advice"
update_package_lists
is_available redis-server || fail "redis-server is missing and this distribution has none; $advice"
install_packages redis-server || fail "redis-server is missing and apt-get failed; $advice"
find_redis || fail "redis-server was installed but is not on the PATH"

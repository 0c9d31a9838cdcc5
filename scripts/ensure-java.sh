#!/usr/bin/env bash
# Prints the JAVA_HOME of a Java 17 or 21; installs Debian's where there is none and rights allow it.
# Usage: ensure-java.sh [the folder of Debian's Java runtimes]
set -euo pipefail
source "$(dirname "$0")/debian.sh"
runtimes=${1:-/usr/lib/jvm}

# Asks the java at $1 for its home, and prints it when Spark can use that version. The home is
# Java's own answer, since the command may be a link or a version manager's script.
usable_home() {
    local settings
    settings=$("$1" -XshowSettings:properties -version 2>&1 </dev/null) || return 1
    case $(property java.specification.version "$settings") in
        17 | 21) property java.home "$settings" ;;
        *) return 1 ;;
    esac
}

property() {
    awk -v name="$1" '$1 == name && $2 == "=" { sub(/^[^=]*= /, ""); print; exit }' <<<"$2"
}

# Debian's folder comes last: a Java 17 there may not be the one that `java` names.
find_java() {
    local java
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java "$runtimes"/*/bin/java; do
        if usable_home "$java"; then return; fi
    done
    return 1
}

if find_java; then exit; fi

advice="install it with 'apt-get install openjdk-17-jre-headless' (or openjdk-21-jre-headless) as root, or set JAVA_HOME"
can_install || fail "Java 17 or 21 is missing and cannot be installed from here; $advice"
update_package_lists
for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
    if is_available "$package"; then
        install_packages "$package" || fail "Java 17 or 21 is missing and apt-get failed; $advice"
        find_java || fail "$package was installed but its java does not run"
        exit
    fi
done
fail "Java 17 or 21 is missing and this distribution has neither; install one and set JAVA_HOME"

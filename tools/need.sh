#!/bin/sh
# need.sh PROGRAM=PACKAGE... makes sure that programs are there: installs the Debian packages of those that are missing, or
# says in one line which are missing where it may not. Called by the Makefile.
set -eu

programs=
packages=
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 && continue
    programs="$programs ${pair%%=*}"
    packages="$packages ${pair#*=}"
done
[ -n "$packages" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "missing on this machine:$programs (Debian packages:$packages)" >&2
    exit 1
fi
echo "installing$packages"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of packages, to be split
apt-get install -y -q --no-install-recommends $packages >/dev/null 2>&1 ||
    { apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends $packages >/dev/null; } ||
    { echo "apt-get could not install$packages" >&2; exit 1; }

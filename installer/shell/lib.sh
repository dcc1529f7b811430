# shellcheck shell=sh
# What the run.sh of every installer image shares. run.sh sources it from the folder the image was unpacked into.
#
# Before any other function, run.sh sets:
#   RUNTIME   k3s or rke2
#   ROOT      prefix of every path on the machine; empty but in tests
#   ARTEFACTS the folder the image was unpacked into
#   UNIT      the systemd unit of the wanted role, once known
#   PROGRAMS  the folder of the distribution's programs, once known

log() {
    printf 'installer: %s\n' "$*"
}

# die ends the installation with the one line that the hub shows.
die() {
    printf 'installer: %s\n' "$*" >&2
    exit 1
}

# find_arch sets ARCH to the release's name of this machine's architecture.
find_arch() {
    machine=$(uname -m)
    case "$machine" in
        x86_64 | amd64) ARCH=amd64 ;;
        aarch64 | arm64) ARCH=arm64 ;;
        *) die "no $RUNTIME release for this machine's architecture: $machine" ;;
    esac
}

# need_tools NAME... stops when a program is missing.
need_tools() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || die "$tool is missing on this machine"
    done
}

# writable FOLDER is true when files can be made in it; the folder is made if it can be.
writable() {
    mkdir -p "$1" 2>/dev/null || return 1
    probe=$(mktemp "$1/.installer-XXXXXX" 2>/dev/null) || return 1
    rm -f "$probe"
}

# place SOURCE TARGET MODE puts a file in place in one step, so that a program that is running from TARGET keeps its old
# copy and a power cut leaves either the old or the new one. A TARGET with the same content stays untouched.
place() {
    if cmp -s "$1" "$2" 2>/dev/null; then
        chmod "$3" "$2"
        return 0
    fi
    mkdir -p "${2%/*}" || die "cannot make the folder ${2%/*}"
    new="${2%/*}/.${2##*/}.new"
    rm -f "$new"
    if ! { cp "$1" "$new" && chmod "$3" "$new" && own "$new" && { sync "$new" 2>/dev/null || sync; } && mv -f "$new" "$2"; }; then
        rm -f "$new"
        die "cannot write $2: is the disk full or read-only?"
    fi
    log "installed $2"
}

# own FILE gives it to root; only root can, and nobody else needs it.
own() {
    [ "$(id -u)" -ne 0 ] || chown 0:0 "$1"
}

# check_sum FILE NAME... compares FILE with the line of the release's checksum file that has one of the NAMEs.
check_sum() {
    file=$1
    shift
    sums=$ARTEFACTS/sha256sum-$ARCH.txt
    [ -f "$sums" ] || die "the image has no ${sums##*/}: was it built for $ARCH?"
    want=
    for name in "$@"; do
        [ -n "$want" ] || want=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]\(.*\/\)\{0,1\}$name\$/\1/p" "$sums" | head -n 1)
    done
    [ -n "$want" ] || die "${sums##*/} has no line for ${file##*/}"
    have=$(sha256sum <"$file") || die "cannot read $file"
    [ "${have%% *}" = "$want" ] || die "${file##*/} is damaged: its checksum is not the one in ${sums##*/}"
}

# place_images PATTERN FOLDER puts the tarballs of container images where the distribution imports them from. A tarball of
# the same images in another compression, left by an earlier version, goes away.
place_images() {
    for tarball in "$ARTEFACTS"/$1; do
        [ -f "$tarball" ] || continue
        base=${tarball##*/}
        place "$tarball" "$2/$base" 0644
        stem=${base%.tar*}
        for old in "$stem.tar" "$stem.tar.gz" "$stem.tar.zst"; do
            [ "$old" = "$base" ] || rm -f "$2/$old"
        done
    done
}

# run_release_installer runs the release's own install script; its environment comes from the caller.
run_release_installer() {
    [ -f "$ARTEFACTS/installer.sh" ] || die "the image has no installer.sh"
    sh "$ARTEFACTS/installer.sh" "$@" || die "the install script of $RUNTIME failed (exit code $?), its output is above"
}

# stop_on_other_role OTHER SCRIPT stops when the unit of the other role runs: both would fight for the same ports and data.
stop_on_other_role() {
    if systemctl is-active --quiet "$1.service"; then
        die "$1 runs on this machine and the plan wants ${UNIT%.service}: run $2 first"
    fi
}

# unit_property NAME prints a property of the unit. The option --value is not used: systemd before 230 does not have it, and without the
# state of the unit a restart would be taken for a start.
unit_property() {
    systemctl show --property="$1" "$UNIT" 2>/dev/null | sed -n "s/^$1=//p" || true
}

# apply_restart_stamp ENVIRONMENT enables the unit and starts or restarts it as the restart stamp and the unit's variables, in
# the file ENVIRONMENT, ask:
#   the unit does not run or has failed                   -> start it
#   it runs, and RESTART_STAMP differs                    -> restart it
#   it runs, and its variables differ from the last start -> restart it, as the published images do
#   it runs, and both are the same, or not known          -> leave it alone
# Both are kept only once systemd has taken the order, so that an installation that broke off restarts the next time.
apply_restart_stamp() {
    find_stamp
    sum_file=$ROOT/var/lib/rancher/$RUNTIME/environment_sum
    systemctl enable --quiet "$UNIT" || die "cannot enable $UNIT"
    make_durable "$1"

    state=$(unit_property ActiveState)
    old_sum=$(cat "$sum_file" 2>/dev/null || true)
    new_sum=$(variables "$1" | sha256sum | cut -d ' ' -f 1)
    case "$state" in
        active | activating | reloading)
            if [ -n "${RESTART_STAMP:-}" ] && [ "$old_stamp" != "$RESTART_STAMP" ]; then
                restart_unit "its restart stamp has changed"
            elif [ -n "$old_sum" ] && [ "$old_sum" != "$new_sum" ]; then
                restart_unit "its environment variables have changed"
            else
                log "$UNIT is $state, its restart stamp and its environment variables have not changed"
            fi
            ;;
        failed)
            systemctl reset-failed "$UNIT" 2>/dev/null || true
            restart_unit "it has failed"
            ;;
        *)
            log "starting $UNIT"
            systemctl --no-block start "$UNIT" || die "cannot start $UNIT"
            ;;
    esac
    if [ -n "${RESTART_STAMP:-}" ]; then
        # Before the stamp is kept: with a link, or a slash at the end of the data directory, one of them is the file of the stamp.
        for earlier in $earlier_files; do
            [ "$earlier" = "$stamp_file" ] || rm -f "$earlier"
        done
        keep "$(cat "$stamp_file" 2>/dev/null || true)" "$RESTART_STAMP" "$stamp_file"
    fi
    keep "$old_sum" "$new_sum" "$sum_file"
    chmod 0600 "$sum_file" # a short password in a variable could be found by trying
}

# find_stamp sets stamp_file to the file in which the published images keep the stamp, too, which is in the data directory, and old_stamp
# to the stamp of the last start. Earlier versions kept it in earlier_files, wherever the data directory was.
find_stamp() {
    default_dir=$ROOT/var/lib/rancher/$RUNTIME
    earlier_files=$default_dir/restart_stamp
    if [ "$RUNTIME" = rke2 ]; then
        published=system-agent-installer/rke2_restart_stamp
        stamp_file=${RKE2_DATA_DIR:-$default_dir}/$published
        earlier_files="$earlier_files $default_dir/$published"
    else
        stamp_file=${K3S_DATA_DIR:-$default_dir}/restart_stamp
    fi
    old_stamp=
    for kept in $earlier_files "$stamp_file"; do
        [ -n "$old_stamp" ] || old_stamp=$(cat "$kept" 2>/dev/null || true)
    done
}

# make_durable ENVIRONMENT writes what was installed to the disk: the agent does not run an instruction again that has succeeded,
# so a power cut must not take anything of it. A version of sync that cannot write single file systems writes all.
make_durable() {
    sync -f "$PROGRAMS" "${1%/*}" "$ROOT/etc/systemd/system" 2>/dev/null || sync || die "cannot write what was installed to the disk"
}

# variables FILE prints the variables of a unit in an order that does not change; a unit may have no file. What a release of RKE2 has there,
# in lines without quotes, does not count: it changes with the version only, and earlier versions of this script had removed it. If it
# counted, the first change of a plan after their replacement would restart RKE2 on all machines at the same time.
variables() {
    [ -f "$1" ] || return 0
    case "$RUNTIME" in
        rke2) sed '/^[A-Za-z_][A-Za-z0-9_]*=[^"]*$/d' "$1" ;;
        *) cat "$1" ;;
    esac | LC_ALL=C sort
}

# restart_unit REASON orders the restart without waiting for the distribution to be ready, which on a joining server can
# need minutes, but waits until the old process is gone. Without that the plan's probes would still reach the old process
# and the hub would take the new plan for healthy.
restart_unit() {
    log "restarting $UNIT: $1"
    before=$(unit_property InvocationID)
    systemctl --no-block restart "$UNIT" || die "cannot restart $UNIT"
    [ -n "$before" ] || return 0
    waited=0
    limit=${INSTALLER_STOP_TIMEOUT:-100}
    while [ "$(unit_property InvocationID)" = "$before" ]; do
        if [ "$waited" -ge "$limit" ]; then
            log "$UNIT has not stopped after $limit s; systemd goes on with the restart"
            return 0
        fi
        sleep 1
        waited=$((waited + 1))
    done
}

# keep OLD NEW FILE remembers in FILE what the unit was last started for.
keep() {
    if [ -z "$2" ] || [ "$1" = "$2" ]; then
        return 0
    fi
    mkdir -p "${3%/*}"
    if ! { printf '%s\n' "$2" >"$3.new" && mv -f "$3.new" "$3"; }; then
        die "cannot write $3: is the disk full or read-only?"
    fi
}

#!/bin/sh
# Installs the system-agent on this machine and registers it with a Drover hub. Needs root, systemd, curl and sha256sum.
#
# The order keeps a machine that cannot be registered clean, and a running agent running: everything is downloaded to a
# temporary directory and verified, then the machine registers, and only then is anything put in place. It can be run again at
# any time: the machine keeps its identity, and the service restarts only when something changed.
#
# A registration token is never put on the command line of another program. An installation of this agent or of rancher-system-agent
# is taken over: directories, settings, identity, and the connection if the caller passes no token.
#
# The Go package beside this file replaces each "@include" by the part that it names.
set -eu
umask 077

SERVICE=rancher-system-agent

usage() {
	cat <<'USAGE'
@include usage.txt
USAGE
}

unit_template() {
	cat <<'UNIT'
@include rancher-system-agent.service
UNIT
}

info() { printf '[INFO]  %s\n' "$*"; }
debug() { [ "${DEBUG:-}" != 1 ] || printf '[DEBUG] %s\n' "$*" >&2; }
fail() {
	printf '[ERROR] %s\n' "$*" >&2
	exit 1
}
is_true() { case ${1:-} in true | TRUE | True | 1) return 0 ;; *) return 1 ;; esac; }
have() { command -v "$1" >/dev/null 2>&1; }
sha256() { sha256sum <"$1" | cut -d ' ' -f 1; }
same() { [ -f "$1" ] && [ -f "$2" ] && [ "$(sha256 "$1")" = "$(sha256 "$2")" ]; }
# one_line reduces output of the hub or curl to one printable line.
one_line() { head -c 4096 | tr -d '\000-\010\013-\037\177' | head -n 1 | cut -c 1-400; }

join() { printf '%s' "${1:+$1,}$2"; }

parse_args() {
	while [ $# -gt 0 ]; do
		case $1 in
		--?*=*)
			option=${1%%=*} value=${1#*=}
			shift
			set -- "$option" "$value" "$@"
			;;
		esac
		case $1 in
		-h | --help) usage && exit 0 ;;
		-a | --all-roles) role_etcd=true role_control_plane=true role_worker=true && shift && continue ;;
		-e | --etcd) role_etcd=true && shift && continue ;;
		-p | --controlplane | --control-plane) role_control_plane=true && shift && continue ;;
		-w | --worker) role_worker=true && shift && continue ;;
		--no-roles) role_none=true && shift && continue ;;
		esac
		[ $# -ge 2 ] || case $1 in
		-?*) fail "Option $1 is unknown or requires a value; --help lists the options" ;;
		*) fail "Argument $1 is unexpected; --help lists the options" ;;
		esac
		case $1 in
		-s | --server) server=$2 ;;
		-t | --token) token=$2 ;;
		-c | --ca-checksum) ca_checksum=$2 ;;
		-n | --node-name) node_name=$2 ;;
		--address) address=$2 ;;
		-i | --internal-address) internal_address=$2 ;;
		-l | --label | --labels) labels=$(join "$labels" "$2") ;;
		--taint | --taints) taints=$(join "$taints" "$2") ;;
		*) fail "Option $1 is unknown; --help lists the options" ;;
		esac
		shift 2
	done
}

read_environment() {
	role_etcd=${CATTLE_ROLE_ETCD:-} role_control_plane=${CATTLE_ROLE_CONTROLPLANE:-}
	role_worker=${CATTLE_ROLE_WORKER:-} role_none=${CATTLE_ROLE_NONE:-}
	server=${CATTLE_SERVER:-} token=${CATTLE_TOKEN:-} ca_checksum=${CATTLE_CA_CHECKSUM:-}
	node_name=${CATTLE_NODE_NAME:-} address=${CATTLE_ADDRESS:-} internal_address=${CATTLE_INTERNAL_ADDRESS:-}
	labels=${CATTLE_LABELS:-} taints=${CATTLE_TAINTS:-}
	unit_dir=${CATTLE_AGENT_UNIT_DIR:-/etc/systemd/system} odd_config='' transaction=''
	strict=${CATTLE_AGENT_STRICT_VERIFY:-${STRICT_VERIFY:-}}
	remote=${CATTLE_REMOTE_ENABLED:-}
	retry_count=${CATTLE_AGENT_RETRY_COUNT:-120}
	# Programs that this script starts do not see the token.
	unset CATTLE_TOKEN
}

check_machine() {
	[ "$(uname -s)" = Linux ] || fail "This script installs the agent on Linux, this machine runs $(uname -s)"
	[ "$(id -u)" = 0 ] || fail "This script must be run as root"
	arch=${ARCH:-$(uname -m)}
	case $arch in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "There is no agent for the architecture $arch, only for amd64 and arm64" ;;
	esac
	for program in curl sha256sum; do
		have "$program" || fail "$program is not installed; install it and run this script again"
	done
	have systemctl || fail "systemctl is not installed: the agent requires systemd; OpenRC is not supported"
	[ -z "$transaction" ] || return 0
	case $(systemctl is-system-running 2>/dev/null </dev/null || :) in
	offline | unknown | '') fail "This machine does not run systemd, which the agent requires" ;;
	esac
}

check_settings() {
	for folder in "$config_dir" "$var_dir" "$unit_dir" "$interlock_dir" "$connection_file" "$prefix"; do
		case $folder in
		/usr) [ "$folder" = "$prefix" ] || fail "The directory $folder must be an absolute path, at least two levels deep" ;;
		*[!A-Za-z0-9._/@+-]* | */../* | */..) fail "The directory $folder may contain only letters, digits and ._/@+-" ;;
		/*/*) ;;
		*) fail "The directory $folder must be an absolute path, at least two levels deep" ;;
		esac
	done
	case $retry_count in '' | 0 | *[!0-9]*) fail "CATTLE_AGENT_RETRY_COUNT must be greater than 0, got $retry_count" ;; esac
	# A token implies plans of the hub. Without a hub and local plans there is nothing to do.
	remote=${remote:-${token:+true}}
	remote=$(switch remoteEnabled "$remote" true)
	is_true "$remote" || is_true "$(switch localEnabled "${CATTLE_LOCAL_ENABLED:-}" false)" ||
		fail "Neither a hub nor local plans are enabled (CATTLE_REMOTE_ENABLED, CATTLE_LOCAL_ENABLED)"
	case ${CATTLE_AGENT_PLAN_SIGNATURES:-off} in
	off | warn | enforce) ;;
	*) fail "CATTLE_AGENT_PLAN_SIGNATURES must be off, warn or enforce, got $CATTLE_AGENT_PLAN_SIGNATURES" ;;
	esac
	registers=''
	if is_true "$remote" && { [ -n "$token" ] || [ ! -s "$connection_file" ]; }; then registers=true; fi
	server=${server%/}
	case $server in
	https://?*) ;;
	'') [ -z "$registers" ] || fail "The URL of the hub is missing (--server); without a hub, set CATTLE_REMOTE_ENABLED=false" ;;
	*) fail "The URL of the hub must begin with https://, got $server" ;;
	esac
	ca_checksum=$(printf '%s' "$ca_checksum" | tr 'A-F' 'a-f')
	case $ca_checksum in *[!0-9a-f]*) fail "The CA checksum must be a SHA-256 in hexadecimal, got $ca_checksum" ;; esac
	case ${#ca_checksum} in 0 | 64) ;; *) fail "The CA checksum must have 64 digits, got ${#ca_checksum}" ;; esac
	strict=${strict:-${ca_checksum:+true}}
	if is_true "$strict" && [ -n "$server" ] && is_true "$remote" && [ -z "$ca_checksum" ]; then
		fail "Strict verification requires the checksum of the hub's CA (--ca-checksum)"
	fi
	for value in "$server" "$token" "$node_name" "$address" "$internal_address" "$labels" "$taints" "${CATTLE_ID:-}" \
		"${CATTLE_AGENT_METRICS_ADDRESS:-}" "$http_proxy" "$https_proxy"; do
		case $value in *[[:cntrl:]]*) fail "An option or variable contains a control character" ;; esac
	done
	[ -n "$registers" ] || return 0
	[ -n "$token" ] || fail "The registration token is missing (--token or CATTLE_TOKEN)"
	is_true "$role_etcd" || is_true "$role_control_plane" || is_true "$role_worker" || is_true "$role_none" ||
		fail "This machine has no role: pass --etcd, --controlplane, --worker, or --no-roles"
}

# make_work_dir creates the temporary directory beside the binary, so that the binary is put in place with one rename.
make_work_dir() {
	made_dirs=
	if [ -n "$packaged" ]; then
		bin_dir=${packaged%/*}
		work=$(mktemp -d) || fail "Cannot create a temporary directory"
		return 0
	fi
	if ! make_work_dir_in "$prefix/bin"; then
		if [ "$prefix" != /usr/local ] || [ -n "${CATTLE_AGENT_BIN_PREFIX:-}" ]; then fail "The directory $prefix/bin is not writable"; fi
		prefix=/opt/rancher-system-agent
		make_work_dir_in "$prefix/bin" || fail "Neither /usr/local/bin nor $prefix/bin is writable"
	fi
	bin_dir=$prefix/bin
}

make_work_dir_in() {
	make_dir 0755 "$1" && work=$(mktemp -d "$1/.system-agent-install.XXXXXX" 2>/dev/null)
}

# make_dir MODE DIR creates DIR and records it, so that a failed installation can remove it.
make_dir() {
	[ ! -d "$2" ] || return 0
	make_dir 0755 "$(dirname "$2")" && mkdir "$2" 2>/dev/null && chmod "$1" "$2" || return 1
	label "$2"
	made_dirs="$2 $made_dirs"
}

# label gives what was created its label under SELinux, which need not be that of the directory above it: programs have another one in /opt.
label() { ! have restorecon || restorecon -F "$1" >/dev/null 2>&1 </dev/null || :; }

# lock_machine refuses a second run beside this one: both would write the same files, and might generate an identity each. The lock ends
# with this process. With it, the directories of runs that were killed are of no use; they hold the agent and a registration token.
lock_machine() {
	have flock || return 0
	exec 9<"$bin_dir"
	flock -n 9 || fail "This script already runs on this machine: wait until that run ends, or end it"
	for folder in "$bin_dir"/.system-agent-install.*; do [ "$folder" = "$work" ] || rm -rf "$folder"; done
}

work='' interlock='' finished=''
cleanup() {
	[ -z "$work" ] || rm -rf "$work"
	for file in $new_files; do rm -f "$file"; done
	[ -z "$interlock" ] || rm -f "$interlock/restart-pending"
	# Directories that are not empty stay.
	[ -n "$finished" ] || for folder in ${made_dirs:-}; do rmdir "$folder" 2>/dev/null || :; done
}

@include adopt.sh
@include package.sh
@include proxy.sh
@include hub.sh
@include register.sh
@include files.sh
# Nothing runs before the whole script has been downloaded.
main() {
	read_environment
	parse_args "$@"
	find_installation
	find_package
	set_proxies
	check_machine
	check_settings
	refuse_running_node
	trap cleanup EXIT
	trap 'exit 130' HUP INT TERM
	make_work_dir
	lock_machine
	connection='' ca_file='' uncertain=''
	if [ -n "$server" ] && is_true "$remote"; then
		verify_ca
		check_hub
	fi
	fetch_agent
	if [ -n "$registers" ]; then
		register
	elif is_true "$remote"; then
		info "No token given: keeping the connection in $connection_file"
		"$work/system-agent" validate-connection "$connection_file" >"$work/validate" 2>&1 </dev/null ||
			fail "The connection in $connection_file is invalid: $(one_line <"$work/validate"); pass --token to register again"
	fi
	put_in_place
	finished=true
}

main "$@"

# Requests to the hub: its CA, its health, and downloads.

# get URL FILE [curl options] returns 0 if the hub gave a final answer (its code in $status), and 1 if a retry may help
# ($reason, $retry_after). With $resume, what FILE has is the beginning of the answer, and the rest is requested, unless the server has
# another version of it now: $validator is the one that was begun.
get() {
	url=$1 file=$2 rc=0 reason='' retry_after='' status='' begun=true
	shift 2
	[ -n "${resume:-}" ] || : >"$file"
	[ -s "$file" ] || begun='' validator=''
	host=$(host_of "$url") direct=''
	if excepted "$host"; then direct=$host; fi
	# A server that is not verified yet must not fill the disk. The unit is 512 bytes.
	answer=$(ulimit -f "${answer_blocks:-2048}" 2>/dev/null || :
		curl -q -sS --connect-timeout 15 --speed-limit 1 --speed-time 120 -D "$work/headers" -o "$file" \
		-w '%{http_code} %{local_ip}' ${ca_file:+--cacert "$ca_file"} ${direct:+--noproxy "$direct"} ${resume:+-C -} \
		${validator:+-H "If-Range: $validator"} "$@" "$url" 2>"$work/curl.err" </dev/null) || rc=$?
	status=${answer%% *} local_ip=${answer#* }
	[ -z "${resume:-}" ] || [ "$status" != 200 ] ||
		validator=$(sed -n 's/^[Ee][Tt][Aa][Gg]: *\("[^"]*"\).*/\1/p' "$work/headers" | tail -n 1)
	debug "GET $url: curl $rc, HTTP $status"
	case $rc in
	0) ;;
	3) fail "$url is not a valid URL" ;;
	23 | 153) fail "Cannot write the answer of $url to $work; is the disk full, or the answer too large?" ;;
	33)
		# The answer is not the rest of the file: that of a server which is busy, or another version of the file.
		case $status in
		429 | 5??) ;;
		*)
			: >"$file"
			reason="HTTP $status, and not the rest of the file"
			return 1
			;;
		esac
		;;
	60 | 77)
		reason=$(one_line <"$work/curl.err")
		# The clock of a machine may be set only after boot. GnuTLS has one error for that and for a certificate that is not trusted.
		case $reason$(timedatectl show -p NTPSynchronized --value 2>/dev/null </dev/null) in
		*"not yet valid"* | *"CRLfile: none"*no)
			reason="$reason; the clock of this machine is at $(date -u '+%Y-%m-%d %H:%M UTC')"
			return 1
			;;
		esac
		fail "The certificate of $url is not trusted ($reason); nothing was installed"
		;;
	*)
		reason=$(one_line <"$work/curl.err")
		# Once connected, the hub may have processed the request.
		case $rc in 5 | 6 | 7 | 35) ;; *) uncertain=true ;; esac
		return 1
		;;
	esac
	case $status in
	429 | 5??)
		[ "$status" = 429 ] || uncertain=true
		reason="HTTP $status"
		# What was begun stays: curl has not written the answer.
		if [ -z "$begun" ]; then
			reason="$reason: $(one_line <"$file")"
			: >"$file"
		fi
		retry_after=$(sed -n 's/^[Rr][Ee][Tt][Rr][Yy]-[Aa][Ff][Tt][Ee][Rr]: *\([0-9]\{1,3\}\).*/\1/p' "$work/headers" | tail -n 1)
		return 1
		;;
	esac
}

# retry WHAT COMMAND... runs COMMAND until it succeeds, with growing delays, at most $retry_count times.
retry() {
	what=$1 attempt=1 delay=2
	shift
	until "$@"; do
		[ "$attempt" -lt "$retry_count" ] || fail "$what failed $attempt times, giving up: $reason"
		pause=${retry_after:-$delay}
		info "$what: $reason; retrying in $pause s (attempt $attempt of $retry_count)"
		sleep "$pause"
		attempt=$((attempt + 1)) delay=$((delay * 2))
		[ "$delay" -le 30 ] || delay=30
	done
}

# verify_ca makes the CA with the given checksum the only one that is trusted for the hub.
verify_ca() {
	ca_file=
	[ -n "$ca_checksum" ] || return 0
	retry "Downloading the CA of $server" get "$server/cacerts" "$work/cacerts.pem" --insecure --max-time 60
	[ "$status" = 200 ] || fail "$server/cacerts answers HTTP $status; nothing was installed"
	actual=$(sha256 "$work/cacerts.pem")
	[ "$actual" = "$ca_checksum" ] ||
		fail "The CA of $server has the checksum $actual instead of $ca_checksum; nothing was installed"
	if have openssl && ! openssl x509 -noout -in "$work/cacerts.pem" >/dev/null 2>&1 </dev/null; then
		fail "$server/cacerts is not a certificate; nothing was installed"
	fi
	ca_file=$work/cacerts.pem
}

check_hub() {
	retry "Reaching $server" get "$server/healthz" "$work/healthz" --max-time 60
	[ "$status" = 200 ] || fail "$server/healthz answers HTTP $status: $(one_line <"$work/healthz"); is this the URL of a hub?"
	detected_address=$local_ip
	case $detected_address in 127.* | ::1) detected_address= ;; esac
}

# download URL FILE downloads a file. The CA of the hub is for the hub only, other servers need one that the machine trusts. An attempt
# continues where the one before was cut off: a hub ends an answer after half an hour. 416 is the answer if nothing was missing any more.
download() {
	: >"$2"
	resume=true
	case $1 in
	"${server:-none}"/*) retry "Downloading $1" get "$1" "$2" ;;
	https://* | http://*)
		hub_ca=$ca_file ca_file=
		retry "Downloading $1" get "$1" "$2" -L --proto-redir =https
		ca_file=$hub_ca
		;;
	*) fail "$1 is not a URL to download from" ;;
	esac
	resume='' validator=''
	case $status in 200 | 206 | 416) ;; *) fail "$1 answers HTTP $status: $(one_line <"$2"); nothing was installed" ;; esac
}

# fetch_verified FILE URL CHECKSUM INSTALLED downloads URL to FILE and verifies its checksum. If CHECKSUM is empty, it uses the one that is
# published beside URL over a verified connection. While the replicas of a hub are replaced, the two may come from replicas of two versions:
# then both are requested until they agree. INSTALLED is used instead of a download if it has that checksum.
fetch_verified() {
	rounds=$retry_count
	[ "$rounds" -le 12 ] || rounds=12
	until fetch_once "$@"; do
		rounds=$((rounds - 1))
		if [ -n "$3" ] || [ "$rounds" = 0 ]; then fail "$2 has the checksum $actual instead of $wanted; nothing was installed"; fi
		info "$2 does not have the checksum in $2.sha256: is the hub being upgraded? Requesting both again in 10 s"
		sleep 10
	done
}

# fetch_once returns 1 if the checksum is another one. A file of the round before is kept if the checksum is now that of it.
fetch_once() {
	wanted=$(printf '%s' "$3" | tr 'A-F' 'a-f')
	if [ -z "$wanted" ]; then
		case $2 in https://*) ;; *) fail "$2 is not https: pass its checksum" ;; esac
		download "$2.sha256" "$work/sha256"
		wanted=$(head -n 1 "$work/sha256" | cut -c 1-64)
		case $wanted in *[!0-9a-f]*) fail "$2.sha256 contains no SHA-256; nothing was installed" ;; esac
		[ "${#wanted}" = 64 ] || fail "$2.sha256 contains no SHA-256; nothing was installed"
	fi
	if [ -f "$1" ] && [ "$(sha256 "$1")" = "$wanted" ]; then return 0; fi
	if [ -f "$4" ] && [ "$(sha256 "$4")" = "$wanted" ]; then
		cp "$4" "$1" || fail "Cannot write $1; is the disk full?"
	else
		info "Downloading $2"
		answer_blocks=1048576
		download "$2" "$1"
		answer_blocks=
	fi
	actual=$(sha256 "$1")
	[ "$actual" = "$wanted" ]
}

# given BINARY|UNINSTALL prints something if the caller sets its source.
given() { eval "printf '%s' \"\${CATTLE_AGENT_${1}_LOCAL:-}\${CATTLE_AGENT_${1}_URL:-}\""; }

# take_local VARIABLE PATH FILE CHECKSUM copies a file of this machine, and verifies its checksum if one is given.
take_local() {
	cp "$2" "$3" 2>/dev/null || fail "Cannot read $1 (${2:-not set})"
	[ -z "$4" ] || [ "$(sha256 "$3")" = "$(printf '%s' "$4" | tr 'A-F' 'a-f')" ] ||
		fail "$2 has the checksum $(sha256 "$3") instead of $4; nothing was installed"
}

fetch_agent() {
	if [ -n "$packaged" ]; then
		info "Using the agent of the package drover-agent, $packaged"
		ln -s "$packaged" "$work/system-agent"
		return 0
	fi
	base=${CATTLE_AGENT_BINARY_BASE_URL:-${server:+$server/assets}}
	if [ -z "$base" ] && { [ -z "$(given BINARY)" ] || [ -z "$(given UNINSTALL)" ]; }; then
		fail "No source for the agent: pass --server, CATTLE_AGENT_BINARY_BASE_URL, or the agent and its uninstall script as files"
	fi
	if is_true "${CATTLE_AGENT_BINARY_LOCAL:-}"; then
		take_local CATTLE_AGENT_BINARY_LOCAL_LOCATION "${CATTLE_AGENT_BINARY_LOCAL_LOCATION:-}" "$work/system-agent" "${CATTLE_AGENT_BINARY_CHECKSUM:-}"
	else
		fetch_verified "$work/system-agent" "${CATTLE_AGENT_BINARY_URL:-$base/system-agent-$arch}" \
			"${CATTLE_AGENT_BINARY_CHECKSUM:-}" "$bin_dir/system-agent"
	fi
	if is_true "${CATTLE_AGENT_UNINSTALL_LOCAL:-}"; then
		take_local CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION "${CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION:-}" "$work/uninstall.sh" \
			"${CATTLE_AGENT_UNINSTALL_CHECKSUM:-}"
	else
		fetch_verified "$work/uninstall.sh" "${CATTLE_AGENT_UNINSTALL_URL:-$base/system-agent-uninstall.sh}" \
			"${CATTLE_AGENT_UNINSTALL_CHECKSUM:-}" "$bin_dir/system-agent-uninstall.sh"
	fi
	chmod 0755 "$work/system-agent" "$work/uninstall.sh"
	"$work/system-agent" --version >"$work/validate" 2>&1 </dev/null ||
		fail "The agent for $arch does not run on this machine: $(one_line <"$work/validate"); nothing was installed"
}

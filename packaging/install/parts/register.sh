# How this machine gets its identity and registers.

# metadata URL [curl options] requests a cloud's metadata service, never through a proxy: that would get its own address.
metadata() { ask "$@" --noproxy '*'; }
ask() { curl -q -sSf --max-time 20 "$@" 2>/dev/null </dev/null; }

# resolve_address VALUE prints VALUE, or the address of the interface or cloud service it names.
resolve_address() {
	aws=http://169.254.169.254/latest do=http://169.254.169.254/metadata/v1/interfaces
	azure=http://169.254.169.254/metadata/instance/network/interface/0/ipv4/ipAddress/0
	azure_query='api-version=2021-02-01&format=text'
	gce=http://metadata.google.internal/computeMetadata/v1/instance/network-interfaces/0
	packet=https://metadata.platformequinix.com/2009-04-04/meta-data
	case $1 in
	awslocal | awspublic)
		session=$(metadata "$aws/api/token" -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' || :)
		case $1 in awslocal) kind=local-ipv4 ;; *) kind=public-ipv4 ;; esac
		found=$(metadata "$aws/meta-data/$kind" ${session:+-H "X-aws-ec2-metadata-token: $session"} || :)
		;;
	azprivate) found=$(metadata "$azure/privateIpAddress?$azure_query" -H 'Metadata: true' || :) ;;
	azpublic) found=$(metadata "$azure/publicIpAddress?$azure_query" -H 'Metadata: true' || :) ;;
	doprivate) found=$(metadata "$do/private/0/ipv4/address" || :) ;;
	dopublic) found=$(metadata "$do/public/0/ipv4/address" || :) ;;
	gceinternal) found=$(metadata "$gce/ip" -H 'Metadata-Flavor: Google' || :) ;;
	gceexternal) found=$(metadata "$gce/access-configs/0/external-ip" -H 'Metadata-Flavor: Google' || :) ;;
	packetlocal) found=$(metadata "$packet/local-ipv4" || :) ;;
	packetpublic) found=$(metadata "$packet/public-ipv4" || :) ;;
	ipify) found=$(ask https://api.ipify.org || :) ;;
	*)
		found=$1
		if [ -n "$1" ] && [ -d "/sys/class/net/$1" ]; then
			have ip || fail "ip is not installed; install it, or pass the address of $1"
			# A temporary IPv6 address (RFC 8981) comes before the one that stays, and is gone after some days.
			found=$(ip -o addr show dev "$1" scope global </dev/null | sed -n '/ temporary /!s/.* inet6* \([^ /]*\).*/\1/p' | head -n 1)
		fi
		;;
	esac
	[ -z "$1" ] || [ -n "$found" ] || fail "No address found for $1"
	printf '%s' "$found" | one_line
}

random_hex() { head -c 512 /dev/urandom | sha256sum | cut -c "1-$1"; }

# prepare_identity reads or generates the identity of this machine: its id, and the secret that proves its identity. Both are on disk before
# they are sent to the hub, so that a lost answer does not create a second machine.
prepare_identity() {
	made_id='' made_secret=''
	make_dir 0700 "$config_dir" || fail "Cannot create $config_dir"
	id=${CATTLE_ID:-}
	if [ -z "$id" ] && [ -s "$config_dir/cattle-id" ]; then id=$(cat "$config_dir/cattle-id"); fi
	[ -n "$id" ] || id=$(random_hex 63)
	case $id in *[!A-Za-z0-9._-]*) fail "The id of this machine ($config_dir/cattle-id) may contain only letters, digits and ._-" ;; esac
	[ "${#id}" -le 63 ] || fail "The id of this machine ($config_dir/cattle-id) is longer than 63 characters"
	[ -s "$config_dir/cattle-id" ] || made_id=true
	[ -s "$config_dir/machine-secret" ] || made_secret=true
	[ -z "$made_secret" ] || random_hex 64 >"$work/machine-secret"
	[ -n "$made_secret" ] || cp "$config_dir/machine-secret" "$work/machine-secret"
	printf '%s\n' "$id" >"$work/cattle-id"
	put 0600 "$work/cattle-id" "$config_dir/cattle-id"
	put 0600 "$work/machine-secret" "$config_dir/machine-secret"
	sync -f "$config_dir" 2>/dev/null || sync || :
}

# forget_identity removes what prepare_identity wrote, unless the hub may have received it.
forget_identity() {
	[ -z "$uncertain" ] || return 0
	[ -z "$made_id" ] || rm -f "$config_dir/cattle-id"
	[ -z "$made_secret" ] || rm -f "$config_dir/machine-secret"
}

# header NAME VALUE prints a line of curl's configuration file. Quoting happens inside this shell and sed's input.
header() { [ -z "$2" ] || printf 'header = "%s: %s"\n' "$1" "$(printf '%s' "$2" | sed 's/[\\"]/\\&/g')"; }
header_if() { ! is_true "$2" || header "$1" true; }

register() {
	address=$(resolve_address "$address")
	internal_address=$(resolve_address "$internal_address")
	uncertain=
	prepare_identity
	# A Node cannot have such a name, or would have that of other machines. What is registered may run under it.
	[ -z "$made_id" ] || case ${node_name:-$(uname -n)} in
	localhost | localhost.* | *[!A-Za-z0-9.-]*) info "Host name ${node_name:-$(uname -n)} is unsuitable: change it, or pass --node-name" ;;
	esac
	{
		header Authorization "Bearer $token"
		header X-Cattle-Id "$id"
		header X-Cattle-Machine-Secret "$(cat "$work/machine-secret")"
		header_if X-Cattle-Role-Etcd "$role_etcd"
		header_if X-Cattle-Role-Control-Plane "$role_control_plane"
		header_if X-Cattle-Role-Worker "$role_worker"
		header X-Cattle-Node-Name "$node_name"
		header X-Cattle-Address "$address"
		header X-Cattle-Internal-Address "$internal_address"
		header X-Cattle-Detected-Address "$detected_address"
		header X-Cattle-Labels "$labels"
		header X-Cattle-Taints "$taints"
		header X-Cattle-Server-Token-Hash "$server_token_hash"
	} >"$work/register.conf"
	info "Registering this machine at $server"
	retry "Registering at $server" get "$server/v3/connect/agent" "$work/answer" -K "$work/register.conf" --max-time 150
	case $status in
	200) ;;
	401 | 403)
		forget_identity
		if [ -s "$connection_file" ] && [ -n "$made_secret" ]; then
			# It was registered by a script without machine secrets, and cannot prove its identity. Its connection still works.
			info "The hub refuses this registration (HTTP $status): $(one_line <"$work/answer"); keeping its connection"
			return 0
		fi
		fail "The hub refuses this registration (HTTP $status): $(one_line <"$work/answer")"
		;;
	*)
		forget_identity
		fail "The hub cannot register this machine (HTTP $status): $(one_line <"$work/answer")"
		;;
	esac
	[ -n "$made_secret" ] || info "If the hub knows this machine, it keeps its roles, name, labels, taints and addresses: change them in the hub"
	connection=$work/rancher2_connection_info.json
	mv "$work/answer" "$connection"
	"$work/system-agent" validate-connection "$connection" >"$work/validate" 2>&1 </dev/null ||
		fail "The hub's answer is not valid connection info: $(one_line <"$work/validate")"
	refuse_second_cluster
}

# refuse_running_node fails where Kubernetes runs on a machine that is not registered: it would get the configuration of the new cluster, and
# start again with the data of its own. Of one that is registered, the hub compares the token. A caller who passes the machine's id knows
# what it is.
refuse_running_node() {
	server_token_hash=''
	if [ -z "$registers" ] || [ -n "$transaction" ] || [ -n "${CATTLE_ID:-}" ]; then return 0; fi
	for unit in k3s k3s-agent rke2-server rke2-agent; do
		# It is active, or activating: a server that does not come up, since the others of its cluster are gone. Or it is reloading.
		case $(systemctl is-active "$unit" </dev/null) in a* | r*) ;; *) continue ;; esac
		if [ -s "$config_dir/cattle-id" ] || [ -s "$connection_file" ]; then
			server_token_hash=$(running_token "$unit")
			return 0
		fi
		case $unit in rke2*) script=rke2-uninstall.sh ;; *) script=$unit-uninstall.sh ;; esac
		info "To have the hub manage that cluster, import it. For another one, run $script first, which deletes its data"
		fail "This machine is a node of a cluster already: $unit is running; nothing was installed"
	done
}

# running_token UNIT prints the hash of the token in the configuration that the hub has written for a server of k3s or RKE2, which is beside
# the agent's. The server of another cluster has another one.
running_token() {
	case $1 in k3s) found=k3s ;; rke2-server) found=rke2 ;; *) return 0 ;; esac
	found=$(sed -n 's/.*"token": *"\([^"]*:\)\{0,1\}\([A-Za-z0-9._-]*\)".*/\2/p' \
		"${config_dir%/*}/$found/config.yaml.d/50-rancher.yaml" 2>/dev/null | head -n 1)
	[ -z "$found" ] || printf '%s' "$found" | sha256sum | cut -c 1-64
}

# connection_field NAME FILE prints a text of connection info, or of the kubeconfig in it.
connection_field() { sed -n "s/.*\"\{0,1\}$1\"\{0,1\}: *\"\{0,1\}\([^\"\\\\ ]*\).*/\1/p" "$2" | head -n 1; }

# refuse_second_cluster fails where the machine is in a cluster of another namespace of the same hub. Its distribution would be configured
# for the new cluster, with the data of the other one. The hub itself refuses that within a namespace.
refuse_second_cluster() {
	[ -s "$connection_file" ] || return 0
	[ "$(connection_field server "$connection_file")" = "$(connection_field server "$connection")" ] || return 0
	was=$(connection_field namespace "$connection_file") now=$(connection_field namespace "$connection")
	[ "$was" != "$now" ] || return 0
	info "To move it: delete its Machine in $was and the new one in $now, run system-agent-uninstall.sh and that of RKE2 or k3s, register again"
	fail "This machine is in a cluster of namespace $was; nothing was changed"
}

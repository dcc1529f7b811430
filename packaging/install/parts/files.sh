# What is put in place, and how.

# env_line NAME VALUE prints a line of a systemd environment file.
env_line() { [ -z "$2" ] || printf '%s="%s"\n' "$1" "$(printf '%s' "$2" | sed 's/[\\"$`]/\\&/g')"; }

write_env() {
	env_line CATTLE_LOGLEVEL "${CATTLE_AGENT_LOGLEVEL:-info}"
	env_line CATTLE_AGENT_CONFIG "$config_dir/config.yaml"
	env_line CATTLE_AGENT_STRICT_VERIFY "${strict:-false}"
	# For the uninstall script.
	env_line CATTLE_AGENT_CONFIG_DIR "$config_dir"
	env_line CATTLE_AGENT_VAR_DIR "$var_dir"
	env_line CATTLE_AGENT_BIN_PREFIX "$prefix"
	env_line HTTP_PROXY "${HTTP_PROXY:-${http_proxy:-}}"
	env_line HTTPS_PROXY "${HTTPS_PROXY:-${https_proxy:-}}"
	env_line NO_PROXY "${NO_PROXY:-${no_proxy:-}}"
	case $prefix in
	/usr/local) ;;
	*) env_line PATH "${CATTLE_AGENT_FALLBACK_PATH:-${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}:/opt/rke2/bin:/opt/bin}" ;;
	esac
}

write_config() {
	cat <<CONFIG
workDirectory: $var_dir/work
appliedPlanDirectory: $var_dir/applied
imagesDirectory: $var_dir/images
interlockDirectory: $var_dir/interlock
agentRegistriesFile: $config_dir/registries.yaml
preserveWorkDirectory: $(is_true "${CATTLE_PRESERVE_WORKDIR:-}" && echo true || echo false)
localEnabled: $(is_true "${CATTLE_LOCAL_ENABLED:-}" && echo true || echo false)
localPlanDirectory: $var_dir/plans
remoteEnabled: $(is_true "$remote" && echo true || echo false)
connectionInfoFile: $var_dir/rancher2_connection_info.json
CONFIG
}

# for_each_file COMMAND calls COMMAND MODE STAGED TARGET for every file of the installation.
for_each_file() {
	"$1" 0755 "$work/system-agent" "$bin_dir/system-agent"
	"$1" 0755 "$work/uninstall.sh" "$bin_dir/system-agent-uninstall.sh"
	"$1" 0600 "$work/config.yaml" "$config_dir/config.yaml"
	[ -z "$connection" ] || "$1" 0600 "$connection" "$var_dir/rancher2_connection_info.json"
	"$1" 0600 "$work/env" "$unit_dir/$SERVICE.env"
	"$1" 0644 "$work/unit" "$unit_dir/$SERVICE.service"
}

changed=
compare() { same "$2" "$3" || changed=true; }

# put MODE STAGED TARGET replaces TARGET whole. The temporary file is beside it, since a rename works in one file system only.
put() {
	if ! same "$2" "$3"; then
		rm -f "$3.new"
		if ! cp "$2" "$3.new" || ! chmod "$1" "$3.new" || ! mv -f "$3.new" "$3"; then
			fail "The file $3 cannot be written"
		fi
	fi
	chmod "$1" "$3" && chown 0:0 "$3"
	! have restorecon || restorecon -F "$3" >/dev/null 2>&1 </dev/null || :
}

# link TARGET NAME keeps the names that other tools know.
link() { [ "$(readlink "$bin_dir/$2" || :)" = "$1" ] || { rm -f "$bin_dir/$2" && ln -s "$1" "$bin_dir/$2"; }; }

# hold_agent asks a running agent to begin no further plan, and waits for the one that it is applying.
hold_agent() {
	make_dir 0700 "$var_dir/interlock" || fail "The folder $var_dir/interlock cannot be made"
	systemctl is-active --quiet "$SERVICE" </dev/null || return 0
	interlock=$var_dir/interlock
	LC_ALL=C date '+%a %b %e %H:%M:%S %Z %Y' >"$interlock/restart-pending"
	waited=0
	while [ -e "$interlock/applyinator-active" ]; do
		[ "$waited" -lt 300 ] || fail "The running agent has been applying a plan for 5 minutes; run this again later"
		[ "$waited" != 0 ] || info "Waiting up to 5 minutes for the running agent to finish its plan"
		sleep 5
		waited=$((waited + 5))
	done
}

put_in_place() {
	write_config >"$work/config.yaml"
	write_env >"$work/env"
	unit_template | sed -e "s|@BIN_DIR@|$bin_dir|g" -e "s|@UNIT_DIR@|$unit_dir|g" >"$work/unit"
	for_each_file compare
	if [ -z "$changed" ] && systemctl is-active --quiet "$SERVICE" </dev/null; then
		info "The agent is installed and running, nothing changed"
		return 0
	fi
	for folder in "$config_dir" "$var_dir"; do
		if ! make_dir 0700 "$folder" || ! chmod 0700 "$folder"; then fail "The folder $folder cannot be made"; fi
	done
	make_dir 0755 "$unit_dir" || fail "The folder $unit_dir cannot be made"
	[ -z "$changed" ] || hold_agent
	finished=true
	for_each_file put
	link system-agent rancher-system-agent
	link system-agent-uninstall.sh rancher-system-agent-uninstall.sh
	systemctl daemon-reload </dev/null || fail "systemctl daemon-reload failed"
	systemctl enable "$SERVICE" >/dev/null 2>&1 </dev/null || fail "The service $SERVICE cannot be enabled"
	info "Starting the service $SERVICE"
	systemctl restart "$SERVICE" </dev/null || fail "The service $SERVICE does not start; journalctl -u $SERVICE tells why"
	info "The agent is running; journalctl -u $SERVICE -f shows what it does"
}

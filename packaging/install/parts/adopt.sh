# What an earlier installation left on this machine, be it of this agent or of rancher-system-agent, and what of it stays.

# unquoted prints a value of a settings file without the quotes around it.
unquoted() { sed -e 's/[[:space:]]*$//' -e 's/^"\(.*\)"$/\1/' -e "s/^'\\(.*\\)'\$/\\1/" | tail -n 1; }

# env_value NAME prints what the environment file or the unit of the installation sets.
env_value() {
	found=
	[ ! -r "$env_file" ] || found=$(sed -n "s/^$1=//p" "$env_file" | unquoted | sed 's/\\\([\\"$`]\)/\1/g')
	[ -n "$found" ] || [ ! -r "$unit_file" ] || found=$(sed -n "s/^Environment=\"\\{0,1\\}$1=\\([^\"]*\\)\"\\{0,1\\}\$/\\1/p" "$unit_file" | unquoted)
	printf '%s' "$found"
}

# config_value KEY prints what the configuration of the installation says.
config_value() { [ ! -r "$old_config" ] || sed -n "s/^$1:[[:space:]]*//p" "$old_config" | sed 's/[[:space:]]#.*//' | unquoted; }

# find_installation sets the folders: those that the caller names, else those of the installation, else the usual ones.
find_installation() {
	env_file=$unit_dir/$SERVICE.env unit_file=$unit_dir/$SERVICE.service old_config=''
	installed=$(env_value CATTLE_AGENT_CONFIG)
	config_dir=${CATTLE_AGENT_CONFIG_DIR:-${installed%/*}}
	config_dir=${config_dir:-/etc/rancher/agent}
	[ ! -r "$config_dir/config.yaml" ] || old_config=$config_dir/config.yaml
	# Somebody may have written it as JSON, or as YAML of another form. That is kept aside and not taken apart.
	if [ -n "$old_config" ] && ! grep -q '^[A-Za-z]*:' "$old_config"; then
		info "The configuration $old_config is not in the form of one key in a line; it is kept as $old_config.before"
		odd_config=$old_config old_config=''
	fi
	var_dir=${CATTLE_AGENT_VAR_DIR:-$(env_value CATTLE_AGENT_VAR_DIR)}
	[ -n "$var_dir" ] || var_dir=$(config_value connectionInfoFile | sed -n 's|^\(.*\)/rancher2_connection_info\.json$|\1|p')
	[ -n "$var_dir" ] || var_dir=$(config_value workDirectory | sed -n 's|^\(.*\)/work/*$|\1|p')
	prefix=${CATTLE_AGENT_BIN_PREFIX:-$(env_value CATTLE_AGENT_BIN_PREFIX)}
	[ -n "$prefix" ] || [ ! -r "$unit_file" ] || prefix=$(sed -n 's|^ExecStart=\(/.*\)/bin/[a-z-]*system-agent .*|\1|p' "$unit_file" | tail -n 1)
	usual_folders
	# The agent that is there keeps a journal and leaves programs running when it is replaced, or does not.
	keeps_journal=''
	if [ -r "$unit_file" ] && grep -q '^ExecStart=.*/system-agent run' "$unit_file"; then keeps_journal=true; fi
	connection_file=$(path_setting connectionInfoFile rancher2_connection_info.json)
	interlock_dir=$(path_setting interlockDirectory interlock)
}

# usual_folders fills in what neither the caller nor an installation has said.
usual_folders() {
	if have transactional-update && [ -w /usr ]; then
		# Inside of a transaction: only what is in /usr and /etc becomes part of the next system.
		transaction=true
		var_dir=${var_dir:-/etc/rancher/agent/var} prefix=${prefix:-/usr}
	fi
	var_dir=${var_dir:-/var/lib/rancher/agent}
	[ -z "$prefix" ] || return 0
	prefix=/usr/local
	# A /usr/local of its own may not be there when the agent is started, or differ from one system snapshot to the next.
	if { have mountpoint && mountpoint -q /usr/local </dev/null; } || { [ -d /usr/local ] && [ ! -w /usr/local ]; }; then
		prefix=/opt/rancher-system-agent
	fi
}

# path_setting KEY NAME prints a path of the configuration: <var dir>/NAME, or what is configured where the caller names no folder.
path_setting() {
	found=
	[ -n "${CATTLE_AGENT_VAR_DIR:-}" ] || found=$(config_value "$1")
	printf '%s' "${found:-$var_dir/$2}"
}

# switch KEY VALUE DEFAULT prints true or false: what the caller says, what is configured, or DEFAULT.
switch() {
	value=$2
	[ -n "$value" ] || value=$(config_value "$1")
	if is_true "${value:-$3}"; then echo true; else echo false; fi
}

# optional KEY IS_SET VALUE prints a line for a key that may be absent. A caller that sets the variable to nothing takes the key out.
optional() {
	value=$3
	[ -n "$2" ] || value=$(config_value "$1")
	[ -z "$value" ] || printf '%s: "%s"\n' "$1" "$value"
}

# plan_signatures prints what becomes of plans that the hub has not signed: what the caller says, what is configured, and enforce on a machine
# that had no agent and whose hub has told the key that it signs with. An agent that was here before goes on as before: the plan that it has may
# be one that nobody has signed.
plan_signatures() {
	value=${CATTLE_AGENT_PLAN_SIGNATURES:-$(config_value planSignatures)}
	if [ -z "$value" ] && [ -z "$old_config$odd_config" ] && [ ! -e "$unit_file" ] && [ ! -e "$connection_file" ] && [ -n "$connection" ] &&
		grep -q '"planSigningKey"[[:space:]]*:[[:space:]]*"[^"]' "$connection"; then
		value=enforce
	fi
	printf '%s' "$value"
}

OWN_KEYS='workDirectory|appliedPlanDirectory|imagesDirectory|interlockDirectory|agentRegistriesFile|preserveWorkDirectory|localEnabled|localPlanDirectory|remoteEnabled|connectionInfoFile|planSignatures|metricsAddress'

write_config() {
	cat <<CONFIG
workDirectory: $(path_setting workDirectory work)
appliedPlanDirectory: $(path_setting appliedPlanDirectory applied)
interlockDirectory: $interlock_dir
preserveWorkDirectory: $(switch preserveWorkDirectory "${CATTLE_PRESERVE_WORKDIR:-}" false)
localEnabled: $(switch localEnabled "${CATTLE_LOCAL_ENABLED:-}" false)
localPlanDirectory: $(path_setting localPlanDirectory plans)
remoteEnabled: $(switch remoteEnabled "$remote" true)
connectionInfoFile: $connection_file
CONFIG
	# A configuration that leaves these two out means the agent's defaults, which are not below a var dir of another name.
	if [ -z "$old_config" ]; then
		printf 'imagesDirectory: "%s"\nagentRegistriesFile: "%s"\n' "$var_dir/images" "$config_dir/registries.yaml"
	else
		optional imagesDirectory '' ''
		optional agentRegistriesFile '' ''
	fi
	optional planSignatures set "$(plan_signatures)"
	optional metricsAddress "${CATTLE_AGENT_METRICS_ADDRESS+set}" "${CATTLE_AGENT_METRICS_ADDRESS:-}"
	# What else an operator has configured stays.
	[ -z "$old_config" ] || grep -v -E "^($OWN_KEYS):" "$old_config" || :
}

# env_line NAME VALUE prints a line of a systemd environment file.
env_line() { [ -z "$2" ] || printf '%s="%s"\n' "$1" "$(printf '%s' "$2" | sed 's/[\\"$`]/\\&/g')"; }

OWN_ENV='CATTLE_LOGLEVEL|CATTLE_AGENT_CONFIG|CATTLE_AGENT_STRICT_VERIFY|CATTLE_AGENT_CONFIG_DIR|CATTLE_AGENT_VAR_DIR|CATTLE_AGENT_BIN_PREFIX|[Hh][Tt][Tt][Pp]_[Pp][Rr][Oo][Xx][Yy]|[Hh][Tt][Tt][Pp][Ss]_[Pp][Rr][Oo][Xx][Yy]|[Nn][Oo]_[Pp][Rr][Oo][Xx][Yy]|PATH'

write_env() {
	level=${CATTLE_AGENT_LOGLEVEL:-$(env_value CATTLE_LOGLEVEL)} strict=${strict:-$(env_value CATTLE_AGENT_STRICT_VERIFY)}
	env_line CATTLE_LOGLEVEL "${level:-info}"
	env_line CATTLE_AGENT_CONFIG "$config_dir/config.yaml"
	env_line CATTLE_AGENT_STRICT_VERIFY "${strict:-false}"
	# For the uninstall script.
	env_line CATTLE_AGENT_CONFIG_DIR "$config_dir"
	env_line CATTLE_AGENT_VAR_DIR "$var_dir"
	env_line CATTLE_AGENT_BIN_PREFIX "$prefix"
	env_line HTTP_PROXY "$http_proxy"
	env_line HTTPS_PROXY "$https_proxy"
	env_line NO_PROXY "$no_proxy"
	case $prefix in
	/usr/local | /usr) ;;
	*)
		search=${CATTLE_AGENT_FALLBACK_PATH:-$(env_value PATH)}
		env_line PATH "${search:-${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}:/opt/rke2/bin:/opt/bin}"
		;;
	esac
	# What else an operator has set stays.
	[ ! -r "$env_file" ] || grep -v -E "^($OWN_ENV)=" "$env_file" || :
}

# Finds an existing installation of this agent or of rancher-system-agent, and keeps its settings.

# unquoted prints a value of a settings file without the quotes around it.
unquoted() { sed -e 's/[[:space:]]*$//' -e 's/^"\(.*\)"$/\1/' -e "s/^'\\(.*\\)'\$/\\1/" | tail -n 1; }

# env_value NAME prints the value from the environment file or the unit of the installation.
env_value() {
	found=
	[ ! -r "$env_file" ] || found=$(sed -n "s/^$1=//p" "$env_file" | unquoted | sed 's/\\\([\\"$`]\)/\1/g')
	[ -n "$found" ] || [ ! -r "$unit_file" ] || found=$(sed -n "s/^Environment=\"\\{0,1\\}$1=\\([^\"]*\\)\"\\{0,1\\}\$/\\1/p" "$unit_file" | unquoted)
	printf '%s' "$found"
}

# config_value KEY prints the value from the configuration of the installation.
config_value() { [ ! -r "$old_config" ] || sed -n "s/^$1:[[:space:]]*//p" "$old_config" | sed 's/[[:space:]]#.*//' | unquoted; }

# find_installation sets the directories: those of the caller, else those of the installation, else the defaults.
find_installation() {
	env_file=$unit_dir/$SERVICE.env unit_file=$unit_dir/$SERVICE.service old_config=''
	installed=$(env_value CATTLE_AGENT_CONFIG)
	config_dir=${CATTLE_AGENT_CONFIG_DIR:-${installed%/*}}
	config_dir=${config_dir:-/etc/rancher/agent}
	[ ! -r "$config_dir/config.yaml" ] || old_config=$config_dir/config.yaml
	# It may be JSON, or YAML that this script cannot parse. It is renamed.
	if [ -n "$old_config" ] && ! grep -q '^[A-Za-z]*:' "$old_config"; then
		info "The configuration $old_config does not have one key per line; it is kept as $old_config.before"
		odd_config=$old_config old_config=''
	fi
	var_dir=${CATTLE_AGENT_VAR_DIR:-$(env_value CATTLE_AGENT_VAR_DIR)}
	[ -n "$var_dir" ] || var_dir=$(config_value connectionInfoFile | sed -n 's|^\(.*\)/rancher2_connection_info\.json$|\1|p')
	[ -n "$var_dir" ] || var_dir=$(config_value workDirectory | sed -n 's|^\(.*\)/work/*$|\1|p')
	prefix=${CATTLE_AGENT_BIN_PREFIX:-$(env_value CATTLE_AGENT_BIN_PREFIX)}
	[ -n "$prefix" ] || [ ! -r "$unit_file" ] || prefix=$(sed -n 's|^ExecStart=\(/.*\)/bin/[a-z-]*system-agent .*|\1|p' "$unit_file" | tail -n 1)
	usual_folders
	# This agent keeps a journal and leaves programs running when it is replaced; rancher-system-agent does not.
	keeps_journal=''
	if [ -r "$unit_file" ] && grep -q '^ExecStart=.*/system-agent run' "$unit_file"; then keeps_journal=true; fi
	connection_file=$(path_setting connectionInfoFile rancher2_connection_info.json)
	interlock_dir=$(path_setting interlockDirectory interlock)
}

# usual_folders sets the defaults of directories that neither the caller nor an installation sets.
usual_folders() {
	bulk_dir=$var_dir
	if have transactional-update && [ -w /usr ]; then
		# Inside of a transaction: only what is in /usr and /etc becomes part of the next system. What the agent writes when it runs may be in
		# /var: images in /etc would be in every snapshot of the system.
		transaction=true
		bulk_dir=${bulk_dir:-/var/lib/rancher/agent}
		var_dir=${var_dir:-/etc/rancher/agent/var} prefix=${prefix:-/usr}
	fi
	var_dir=${var_dir:-/var/lib/rancher/agent}
	bulk_dir=${bulk_dir:-$var_dir}
	[ -z "$prefix" ] || return 0
	prefix=/usr/local
	# A /usr/local that is a mount point may not be mounted when the agent starts, or differ between system snapshots.
	if { have mountpoint && mountpoint -q /usr/local </dev/null; } || { [ -d /usr/local ] && [ ! -w /usr/local ]; }; then
		prefix=/opt/rancher-system-agent
	fi
}

# path_setting KEY NAME [DIR] prints a path of the configuration: NAME in DIR, by default <var dir>, or the configured one if the caller
# sets no directory.
path_setting() {
	found=
	[ -n "${CATTLE_AGENT_VAR_DIR:-}" ] || found=$(config_value "$1")
	printf '%s' "${found:-${3:-$var_dir}/$2}"
}

# switch KEY VALUE DEFAULT prints true or false: VALUE, the configured value, or DEFAULT.
switch() {
	value=$2
	[ -n "$value" ] || value=$(config_value "$1")
	if is_true "${value:-$3}"; then echo true; else echo false; fi
}

# optional KEY IS_SET VALUE prints a line for a key that may be absent. An empty variable removes the key.
optional() {
	value=$3
	[ -n "$2" ] || value=$(config_value "$1")
	[ -z "$value" ] || printf '%s: "%s"\n' "$1" "$value"
}

# plan_signatures prints the policy for unsigned plans: the caller's, the configured one, or enforce on a machine without an earlier agent whose
# hub has sent its signing key. An existing agent keeps its policy: its current plan may be unsigned.
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
workDirectory: $(path_setting workDirectory work "$bulk_dir")
appliedPlanDirectory: $(path_setting appliedPlanDirectory applied)
interlockDirectory: $interlock_dir
preserveWorkDirectory: $(switch preserveWorkDirectory "${CATTLE_PRESERVE_WORKDIR:-}" false)
localEnabled: $(switch localEnabled "${CATTLE_LOCAL_ENABLED:-}" false)
localPlanDirectory: $(path_setting localPlanDirectory plans)
remoteEnabled: $(switch remoteEnabled "$remote" true)
connectionInfoFile: $connection_file
CONFIG
	# An existing configuration without these two keys uses the agent's defaults, which are not below another var dir.
	if [ -z "$old_config" ]; then
		printf 'imagesDirectory: "%s"\nagentRegistriesFile: "%s"\n' "$bulk_dir/images" "$config_dir/registries.yaml"
		[ "$bulk_dir" = "$var_dir" ] || printf 'stateDirectory: "%s"\nimageCacheDirectory: "%s"\n' "$var_dir/state" "$bulk_dir"
	else
		optional imagesDirectory '' ''
		optional agentRegistriesFile '' ''
	fi
	optional planSignatures set "$(plan_signatures)"
	optional metricsAddress "${CATTLE_AGENT_METRICS_ADDRESS+set}" "${CATTLE_AGENT_METRICS_ADDRESS:-}"
	# Other keys of the operator are kept, without the marks of a YAML document: the agent reads the first document only.
	[ -z "$old_config" ] || grep -v -E "^(($OWN_KEYS):|(---|\.\.\.)([[:space:]]|\$))" "$old_config" || :
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
	[ -n "$packaged" ] || env_line CATTLE_AGENT_BIN_PREFIX "$prefix"
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
	# Other variables of the operator are kept.
	[ ! -r "$env_file" ] || grep -v -E "^($OWN_ENV)=" "$env_file" || :
}

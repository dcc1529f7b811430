# Proxies: this script and the agent reach the hub in the same way.

# proxy_setting NAME LOWER prints a proxy variable of the caller's, in upper or lower case, also if it is empty. If neither is
# set, it prints that of the installation.
proxy_setting() {
	eval "is_set=\${$1+set}\${$2+set} value=\${$1:-\${$2:-}}"
	[ -n "$is_set" ] || value=$(env_value "$1")
	[ -n "$is_set$value" ] || value=$(env_value "$2")
	printf '%s' "$value"
}

# set_proxies sets the variables that curl reads; it reads HTTP_PROXY in lower case only. NO_PROXY may be separated by spaces; curl and the
# agent require commas.
set_proxies() {
	proxy=$(proxy_setting HTTP_PROXY http_proxy) secure_proxy=$(proxy_setting HTTPS_PROXY https_proxy)
	exceptions=$(proxy_setting NO_PROXY no_proxy | tr -s '[:space:],' ',' | sed -e 's/^,//' -e 's/,$//')
	unset HTTP_PROXY HTTPS_PROXY NO_PROXY
	http_proxy=$proxy https_proxy=$secure_proxy no_proxy=$exceptions
	export http_proxy https_proxy no_proxy
}

# host_of URL prints the host of a URL.
host_of() {
	host=${1#*://}
	host=${host%%/*}
	host=${host##*@}
	case $host in
	\[*) host=${host#\[} && host=${host%%\]*} ;;
	*) host=${host%%:*} ;;
	esac
	printf '%s' "$host"
}

# number ADDRESS prints an IPv4 address as a number, and nothing for anything else.
number() {
	rest=$1. sum=0 parts=0
	while [ -n "$rest" ]; do
		part=${rest%%.*} rest=${rest#*.}
		case $part in '' | *[!0-9]* | ????* | 0?*) return 0 ;; esac
		[ "$part" -le 255 ] || return 0
		sum=$((sum * 256 + part)) parts=$((parts + 1))
	done
	[ "$parts" != 4 ] || printf '%s' "$sum"
}

# excepted HOST succeeds if HOST is in a network of NO_PROXY. Versions of curl before 7.86 do not support networks. Entries that are not
# IPv4 networks are skipped; curl and the agent evaluate them.
excepted() {
	ip=$(number "$1")
	[ -n "$ip" ] || return 1
	list=$no_proxy,
	while [ -n "$list" ]; do
		entry=${list%%,*} list=${list#*,}
		case $entry in */*) ;; *) continue ;; esac
		network=$(number "${entry%%/*}") bits=${entry#*/}
		case $bits in '' | *[!0-9]* | ???* | 0?*) continue ;; esac
		if [ -z "$network" ] || [ "$bits" -gt 32 ]; then continue; fi
		[ $((ip >> (32 - bits))) != $((network >> (32 - bits))) ] || return 0
	done
	return 1
}

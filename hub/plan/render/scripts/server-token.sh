#!/bin/sh
# Replaces the server token of the cluster, or checks that this server was started with it:
#   sh -c SCRIPT server-token STEP STATE SECONDS POLL FILE CA URL PASSWORDS
# STEP is rotate or check, FILE the file of the server with its token, URL where the server takes a new one, PASSWORDS its file with the
# passwords of servers and agents. The new token is NEW_TOKEN of the environment, that of agents NEW_AGENT_TOKEN. No token is ever an
# argument, or printed. STATE is a folder of this token: the script may be killed at any moment and run again.
set -eu
export LC_ALL=C

step=$1 state=$2 seconds=$3 poll=$4 file=$5 ca=$6 url=$7 passwords=$8
end=$(($(date +%s) + seconds))

fail() {
    printf '%s\n' "$1"
    exit 1
}

# current is the token of the server, which has written it as K10<hash>::<user>:<token>.
current() { sed -n '1s/^K10[0-9a-f]*::[^:]*://p' "$file" 2>/dev/null || true; }

# quoted is a text for a configuration of curl.
quoted() { printf '%s' "$1" | sed 's/[\\"]/\\&/g'; }

note() {
    mkdir -p "$state"
    : >"$state/$1"
    sync
}

pause() {
    [ "$(date +%s)" -lt "$end" ] || fail "$1"
    sleep "$poll"
}

# agents puts the new token of agents into the file of passwords, which the server writes to the cluster's data with its own new token. All
# servers take the file from there when they start. If it said another token of agents than their configuration, they would change it at
# that start, and refuse the next one: "cred/passwd newer than datastore". The server reads the file when it starts, and when it is given a
# token. It keeps its time, so that it is not newer than the cluster's data if nothing comes of this.
agents() {
    [ -f "$passwords" ] || return 0
    rm -f "$passwords.new"
    (umask 077 && : >"$passwords.new")
    awk 'match($0, /,node,node,[^,]*$/) { $0 = ENVIRON["NEW_AGENT_TOKEN"] substr($0, RSTART) } 1' "$passwords" >"$passwords.new"
    touch -r "$passwords" "$passwords.new"
    mv -f "$passwords.new" "$passwords"
}

rotate() {
    [ ! -e "$state/refused" ] ||
        fail 'The server reported an error when the token was rotated before, and its state is not known: see its log, and the documentation'
    while :; do
        old=$(current)
        if [ "$old" = "$NEW_TOKEN" ]; then
            echo 'the server has the new token'
            return 0
        fi
        if [ -n "$old" ]; then
            break
        fi
        pause "The server has no token in $file yet"
    done
    agents
    # Arguments of a process can be seen by everybody on the machine; a configuration on standard input cannot.
    if output=$(printf 'user = "server:%s"\ndata-binary = "{\\"newToken\\":\\"%s\\"}"\n' "$(quoted "$old")" "$NEW_TOKEN" |
        curl --config - --silent --show-error --fail --output /dev/null --noproxy '*' --max-time 120 --cacert "$ca" \
            --header 'Content-Type: application/json' --request PUT "$url" 2>&1); then
        sleep "$poll"
        [ "$(current)" = "$NEW_TOKEN" ] || fail 'The server has answered, and has another token still'
        echo 'token rotated'
        return 0
    fi
    if [ "$(current)" = "$NEW_TOKEN" ]; then
        # It writes the file first, then the data of the cluster.
        note refused
    fi
    fail "The server refused the new token: $output"
}

check() {
    while [ "$(current)" != "$NEW_TOKEN" ]; do
        pause 'The server was not started with the new token'
    done
    echo 'the server has the new token'
}

case $step in
rotate) rotate ;;
check) check ;;
*) fail "unknown step $step" ;;
esac

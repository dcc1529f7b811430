#!/bin/sh
# Changes the key that Secrets are encrypted with, or checks it:
#   sh -c SCRIPT encryption-keys STEP STATE SECONDS POLL RUNTIME SERVER KUBECTL [ARGUMENT...]
# STEP is rotate-keys, which does everything in one command of the distribution; prepare, rotate or reencrypt, which are its three-step way; or
# verify. STATE is a folder of this operation: the script may be killed at any moment and run again, and asks the server for nothing twice
# that it has done. What is printed is the text of "secrets-encrypt status" at most: the names of keys, never a key.
set -eu
export LC_ALL=C
# RKE2 and k3s may be in /opt, which is in the PATH of no service.
PATH=$PATH:/usr/local/bin:/opt/rke2/bin:/opt/bin

step=$1 state=$2 seconds=$3 poll=$4 runtime=$5 server=$6
shift 6
# patience is how often the status may show nothing new after a command, before that counts as having had no effect.
patience=12
end=$(($(date +%s) + seconds))
said='' output='' idle=0

encrypt() {
    verb=$1
    shift
    "$runtime" secrets-encrypt "$verb" --server "$server" "$@"
}

# say prints a line that is not the same as the last one.
say() {
    [ "$1" != "$said" ] || return 0
    said=$1
    printf '%s\n' "$1"
}

fail() {
    printf '%s\n' "$1"
    exit 1
}

# short is the end of a text on one line.
short() { printf '%s' "$1" | tr -s '\n\t ' '   ' | tail -c 160; }

# keep writes a file of the state, whole or not at all.
keep() {
    mkdir -p "$state"
    printf '%s\n' "$2" >"$state/$1.new"
    mv -f "$state/$1.new" "$state/$1"
    sync
}

value() { printf '%s\n' "$text" | sed -n "s/^$1: *//p"; }

# look reads the status; it fails if the server does not answer.
look() {
    text=$(encrypt status 2>&1) || return 1
    enabled=$(value 'Encryption Status')
    stage=$(value 'Current Rotation Stage')
    hashes=$(value 'Server Encryption Hashes')
    active=$(printf '%s\n' "$text" | sed -n 's/[[:space:]]*$//; s/^ *\*[[:space:]].*[[:space:]]//p')
}

all_match() {
    case $hashes in
    'All hashes match'*) return 0 ;;
    esac
    return 1
}

# listed reports whether the server has a key of a name.
listed() { printf '%s\n' "$text" | sed 's/[[:space:]]*$//; s/.*[[:space:]]//' | grep -qxF -e "$1"; }

# secretbox reports whether the active key is of that kind.
secretbox() { printf '%s\n' "$text" | grep -q '^ *\*[[:space:]].*XSalsa20'; }

# pause waits for the next look, and fails when there is none left.
pause() {
    [ "$(date +%s)" -lt "$end" ] || fail "$1"
    sleep "$poll"
}

# await reads the status of a server that may be starting.
await() {
    until look; do
        say 'waiting for the server'
        pause "The server does not answer: $(short "$text")"
    done
}

# preflight fails unless all servers have the same keys and the stage is one of those given.
preflight() {
    await
    case $enabled in
    Enabled*) ;;
    *'no configuration file'*)
        fail 'Secrets are not encrypted in this cluster: set secrets-encryption: true in spec.rkeConfig.machineGlobalConfig first' ;;
    *) fail "Encryption of Secrets is disabled on this server: run '$runtime secrets-encrypt enable', restart all servers, and retry" ;;
    esac
    case " $* " in
    *" $stage "*) ;;
    *) fail "Another rotation has begun and not ended, its stage is ${stage:-unknown}: end it with '$runtime secrets-encrypt' first" ;;
    esac
    all_match || fail "The servers have different keys: restart those with old ones, and retry ($(short "$hashes"))"
    [ -n "$active" ] || fail 'The server names no active key'
}

# ask runs a command of the distribution. It may time out although the server goes on, so that only the status counts.
ask() {
    output=$(encrypt "$@" 2>&1) || say "$1: $(short "$output")"
    idle=0
}

rotate_keys() {
    asked=no resumed=no
    if [ ! -s "$state/before" ]; then
        preflight start reencrypt_finished
        keep before "$active"
    fi
    before=$(cat "$state/before")
    while :; do
        await
        say "stage $stage, active key $active"
        if [ "$stage" = reencrypt_finished ] && [ "$active" != "$before" ] && ! listed "$before"; then
            return 0
        fi
        idle=$((idle + 1))
        case $stage in
        reencrypt_request | reencrypt_active) idle=0 ;;
        *)
            if [ "$active" = "$before" ] && [ ! -e "$state/asked" ]; then
                keep asked yes
                asked=yes
                ask rotate-keys
            elif [ "$idle" -lt "$patience" ]; then
                : # the server may not have come to it yet
            elif [ "$active" = "$before" ] && [ "$asked" = no ]; then
                # An earlier run ended between its note and the command.
                asked=yes
                ask rotate-keys
            elif [ "$active" = "$before" ]; then
                fail "rotate-keys had no effect: $(short "$output")"
            elif [ "$idle" -lt $((3 * patience)) ]; then
                : # it may be reading the new key
            elif secretbox; then
                # The server refuses reencrypt, and rotate-keys as well, since its keys have changed.
                fail "Not all Secrets were written with the key $active, and the server cannot write the rest: its keys are of secretbox"
            elif [ "$resumed" = no ]; then
                # The server stopped while it wrote Secrets. It has both keys, and writes the rest.
                resumed=yes
                ask reencrypt --force
            else
                fail "Not all Secrets were written with the key $active, and reencrypt had no effect: $(short "$output")"
            fi
            ;;
        esac
        pause "Not finished in time, at the stage $stage with the active key $active; both keys are kept"
    done
}

# advance goes from one of several stages to the next one, by a command that has the name of the step.
advance() {
    to=$1 asked=0
    shift
    if [ ! -s "$state/$step" ]; then
        await
        # Another server may have done it, which was lost since.
        if [ "$stage" != "$to" ] || [ "$step" = reencrypt ]; then
            preflight "$@"
        fi
        keep "$step" "$stage"
    fi
    while :; do
        await
        say "stage $stage, active key $active"
        [ "$stage" != "$to" ] || return 0
        idle=$((idle + 1))
        case " $* " in
        *" $stage "*)
            if [ "$asked" -eq 0 ] || { [ "$idle" -ge "$patience" ] && [ "$asked" -eq 1 ]; }; then
                asked=$((asked + 1))
                ask "$step"
            elif [ "$idle" -ge "$patience" ]; then
                fail "$step had no effect: $(short "$output")"
            fi
            ;;
        *) idle=0 ;;
        esac
        pause "Not finished in time, at the stage $stage"
    done
}

verify() {
    while :; do
        if ! look; then
            why="The server does not answer: $(short "$text")"
        elif [ "$stage" != reencrypt_finished ]; then
            why="The server is at the stage ${stage:-unknown} instead of reencrypt_finished: restart it"
        elif ! all_match; then
            why="The servers have different keys: restart those with old ones ($(short "$hashes"))"
        elif ! output=$("$@" get secrets --all-namespaces --output name --request-timeout 60s 2>&1 >/dev/null); then
            why="The API server cannot read all Secrets: $(short "$output")"
        else
            echo "stage $stage, active key $active, all servers have it, and all Secrets can be read"
            return 0
        fi
        pause "$why"
    done
}

case $step in
rotate-keys) rotate_keys ;;
prepare) advance prepare start reencrypt_finished ;;
rotate) advance rotate prepare ;;
reencrypt) advance reencrypt_finished rotate ;;
verify) verify "$@" ;;
*) fail "unknown step $step" ;;
esac

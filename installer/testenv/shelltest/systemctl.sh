#!/bin/sh
# Stands for systemctl: units are files in $FAKE_UNITS, orders are written to its log. An order carried out in the
# background is carried out at once, unless FAKE_STUCK is set.
set -eu

block=
if [ "$1" = --no-block ]; then
    block=--no-block
    shift
fi
verb=$1
shift
unit=
property=
for arg in "$@"; do
    case "$arg" in
        --property=*) property=${arg#--property=} ;;
        --value)
            echo "fake systemctl: as before systemd 230, --value is not known" >&2
            exit 1
            ;;
        --*) ;;
        *) unit=$arg ;;
    esac
done
state_file=$FAKE_UNITS/$unit.state
state=$(cat "$state_file" 2>/dev/null || echo inactive)

order() {
    echo "$block${block:+ }$verb${unit:+ }$unit" >>"$FAKE_UNITS/log"
}

case "$verb" in
    is-active) [ "$state" = active ] ;;
    is-enabled) [ -e "$FAKE_UNITS/$unit.enabled" ] ;;
    show)
        case "$property" in
            ActiveState) echo "ActiveState=$state" ;;
            InvocationID) echo "InvocationID=$(cat "$FAKE_UNITS/$unit.invocation" 2>/dev/null || true)" ;;
        esac
        ;;
    enable)
        order
        : >"$FAKE_UNITS/$unit.enabled"
        ;;
    disable) rm -f "$FAKE_UNITS/$unit.enabled" ;;
    start | restart)
        order
        [ -z "${FAKE_REFUSE:-}" ] || exit 1
        [ -z "${FAKE_STUCK:-}" ] || exit 0
        echo active >"$state_file"
        date +%N >"$FAKE_UNITS/$unit.invocation"
        ;;
    reset-failed)
        order
        echo inactive >"$state_file"
        ;;
    daemon-reload) order ;;
    *)
        echo "fake systemctl: $verb is not known" >&2
        exit 1
        ;;
esac

act() { systemctl "$1" "$unit"; }

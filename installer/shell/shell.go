// Package shell holds the part of run.sh that the installer images of all distributions share. It owns text only: what the
// text does on a machine is tested in the package of each distribution.
package shell

import _ "embed"

// Lib is the content of /lib.sh in an installer image; run.sh sources it.
//
//go:embed lib.sh
var Lib []byte

// Package shell holds the shell functions that run.sh of all distributions uses. What they do on a machine is tested in the package of each
// distribution.
package shell

import _ "embed"

// Lib is the content of /lib.sh in an installer image; run.sh sources it.
//
//go:embed lib.sh
var Lib []byte

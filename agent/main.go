// Command system-agent applies the plans of a Drover hub, or of another hub with the same wire format, to the machine it runs on.
package main

import (
	"os"

	"github.com/drover-dev/drover/agent/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}

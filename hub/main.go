// Command hub is the management side of Drover.
package main

import (
	"os"

	"github.com/drover-dev/drover/hub/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}

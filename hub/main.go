// Command hub is the management side of Drover.
package main

import (
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/nodedriver/mkisofs"
)

func main() {
	if filepath.Base(os.Args[0]) == mkisofs.Name {
		// A node driver has started it, in its sandbox.
		os.Exit(mkisofs.Main(os.Args[1:], os.Stderr))
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}

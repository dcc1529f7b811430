package run

import (
	"fmt"
	"os"
	"syscall"
)

// Replace executes the binary that is now at the path of this process, with its arguments and environment, in place of this process. The
// process ID stays, so that a service manager sees no restart. It returns only with an error.
func Replace() error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the path of this binary: %w", err)
	}
	return fmt.Errorf("executing %s: %w", path, syscall.Exec(path, os.Args, os.Environ()))
}

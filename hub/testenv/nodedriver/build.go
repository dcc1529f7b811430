// Package nodedriver builds node drivers for tests, and is the cloud at which they make machines.
package nodedriver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Build builds the driver lab into dir and returns the path of the program. mode makes it misbehave; see the program.
func Build(dir, mode string) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	program := filepath.Join(dir, "docker-machine-driver-lab")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program,
		"github.com/drover-dev/drover/hub/testenv/nodedriver/lab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if filepath.IsAbs(file) {
		build.Dir = filepath.Dir(file)
	}
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the node driver: %w: %s", err, out)
	}
	return program, SetMode(program, mode)
}

// SetMode makes a program that Build has built misbehave.
func SetMode(program, mode string) error {
	if mode == "" {
		return nil
	}
	f, err := os.OpenFile(program, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("MODE=" + mode + "\n")
	return errors.Join(err, f.Close())
}

// Package nodedriver builds node drivers for tests, and is the cloud at which they make machines.
package nodedriver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// Build writes the driver lab into dir and returns the path of the program, which is built once in a process. mode makes it misbehave; see
// the program.
func Build(dir, mode string) (string, error) {
	content, err := built()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "docker-machine-driver-lab")
	// Another process writes it: a program that this one starts meanwhile would have the file open for writing until its exec, and the driver
	// could not be started (golang.org/issue/22315).
	temp, err := os.MkdirTemp(dir, ".driver-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	whole := filepath.Join(temp, "program")
	write := exec.Command("install", "-m", "0755", "/dev/stdin", whole)
	write.Stdin = bytes.NewReader(content)
	if out, err := write.CombinedOutput(); err != nil {
		return "", fmt.Errorf("writing the node driver: %w: %s", err, out)
	}
	// Tests that run at the same time write it into one directory, and a hub may read it.
	if err := os.Rename(whole, program); err != nil {
		return "", err
	}
	return program, SetMode(program, mode)
}

// built is the program. To link it takes longer than most tests with it.
var built = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "drover-driver-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_, file, _, _ := runtime.Caller(0)
	program := filepath.Join(dir, "lab")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program,
		"github.com/drover-dev/drover/hub/testenv/nodedriver/lab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if filepath.IsAbs(file) {
		build.Dir = filepath.Dir(file)
	}
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the node driver: %w: %s", err, out)
	}
	return os.ReadFile(program)
})

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

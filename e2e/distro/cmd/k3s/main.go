// Command k3s is the one program of a release, k3s or rke2: it unpacks the programs that it carries and becomes the one that is asked
// for. It is a test fixture that keeps the host contract of the distribution; see the README of this module.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/payload"
)

// nodeProgram is what this program becomes.
const nodeProgram = "k3s-node"

// others are the programs that are run as they are; everything else is a command of k3s-node.
var others = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, flavour.Name("*:"), err)
		os.Exit(1)
	}
}

func run() error {
	command, args := filepath.Base(os.Args[0]), os.Args[1:]
	if len(args) > 0 && !slices.Contains(others, command) && command != "kubectl" {
		command = args[0]
		args = args[1:]
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if command == "--version" || command == "-v" {
		a, err := payload.Open(self)
		if err != nil {
			return err
		}
		fmt.Printf("%s version %s (%.8s)\ngo version %s\n", flavour.Current.Program, flavour.Version, a.Hash, runtime.Version())
		return nil
	}
	data := dataDir(command, args)
	bin, err := unpack(self, filepath.Join(data, "data"))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"PATH":               bin + ":" + filepath.Join(data, "data", "cni") + ":" + path(),
		"CONTAINERD_ADDRESS": "/run/k3s/containerd/containerd.sock", "CONTAINERD_NAMESPACE": "k8s.io",
		flavour.VersionVariable: flavour.Version,
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	if slices.Contains(others, command) {
		return become(filepath.Join(bin, command), append([]string{command}, args...))
	}
	return become(filepath.Join(bin, nodeProgram), append([]string{flavour.Current.Program, command}, args...))
}

func path() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

func become(file string, args []string) error {
	if err := syscall.Exec(file, args, os.Environ()); err != nil {
		return fmt.Errorf("running %s: %w", file, err)
	}
	return nil
}

// dataDir is the node's data folder. Commands other than server and agent find it in the configuration too; a fault in
// that is reported by the node itself.
func dataDir(command string, args []string) string {
	role := config.Server
	if command == "agent" {
		role = config.Agent
	}
	if command != "server" && command != "agent" {
		args = nil
	}
	for i, a := range args {
		if name, value, found := strings.Cut(a, "="); (name == "--data-dir" || name == "-d") && found {
			return value
		} else if (name == "--data-dir" || name == "-d") && i+1 < len(args) {
			return args[i+1]
		}
	}
	return config.FindDataDir(role, os.Getenv)
}

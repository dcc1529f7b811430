// Package lab puts a whole Drover together on one machine: hosts (e2e/hosts), a registry with the installer image, the
// hub, and the clusters that they make. The demo and the scenarios are built on it and on nothing else, so that what a
// user sees and what is tested is the same.
//
// It runs the product's real binaries and talks to them as a user does: kubectl, the node command, the API. It must not
// reach into the product's packages, but for the API types.
package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/relay"
)

// The version that labs run, one to upgrade to, and where things are in a lab. See Distribution for others.
const (
	Version     = "v1.36.3+k3s1"
	NextVersion = "v1.36.3+k3s2"
	HelloImage  = "docker.io/drover/hello:1"
	agentRepo   = "drover/cluster-agent"

	hubPort         = 8443
	linePort        = 8444
	registryPort    = 5000
	providerPort    = 9450
	hubProcess      = "hub"
	registryProc    = "registry"
	providerProcess = "provider"
)

// Lab is a lab with a hub.
type Lab struct {
	*hosts.Lab
	// Repo is the root of the repository whose bin folder is run.
	Repo string

	// programs is the folder of the hub, its assets and the installer of the cluster-agent, see UsePrograms.
	programs string
	cache    string
	progress *atomic.Pointer[func(string)]
	line     *relay.Relay // see OpenLine
}

// Options says which lab to open.
type Options struct {
	Name   string
	Repo   string // found from the executable and the working directory if empty
	Subnet int    // see hosts.Options
}

// Open reads what is known of a lab. It makes nothing.
func Open(o Options) (*Lab, error) {
	cache, err := hosts.CacheDir()
	if err != nil {
		return nil, err
	}
	if o.Repo == "" {
		if o.Repo, err = findRepo(); err != nil {
			return nil, err
		}
	}
	l := &Lab{Repo: o.Repo, programs: filepath.Join(o.Repo, "bin"), cache: cache, progress: &atomic.Pointer[func(string)]{}}
	l.Lab, err = hosts.Open(hosts.Options{Name: o.Name, Cache: cache, Subnet: o.Subnet, Progress: l.report})
	return l, err
}

// OnProgress has f told, in a few words, what a long step is doing.
func (l *Lab) OnProgress(f func(string)) { l.progress.Store(&f) }

func (l *Lab) report(s string) {
	if f := l.progress.Load(); f != nil && *f != nil {
		(*f)(s)
	}
}

// findRepo looks for this module's root above the executable and above the working directory.
func findRepo() (string, error) {
	var starts []string
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			raw, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err == nil && strings.HasPrefix(string(raw), "module github.com/drover-dev/drover\n") {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("the repository is not found above %s", strings.Join(starts, " or "))
}

// bin is a binary of the repository.
func (l *Lab) bin(name string) string { return filepath.Join(l.Repo, "bin", name) }

// UsePrograms has the hub and the image of the cluster-agent come from another folder than bin, from their next start or build on.
func (l *Lab) UsePrograms(dir string) { l.programs = dir }

// program is a binary of the hub.
func (l *Lab) program(name string) string { return filepath.Join(l.programs, name) }

// binaries are what a lab runs, relative to the repository.
func binaries() []string {
	return []string{"bin/hub", "bin/installer", "bin/lab", "bin/toolbox", "bin/assets/system-agent-" + runtime.GOARCH}
}

// Check makes sure of everything that a lab needs before it makes anything: root, the tools, the binaries.
func (l *Lab) Check(ctx context.Context) error {
	if err := hosts.EnsureTools(ctx, nil, l.report); err != nil {
		return err
	}
	for _, name := range binaries() {
		if _, err := os.Stat(filepath.Join(l.Repo, name)); err != nil {
			return fmt.Errorf("%s is not there: run make build first", name)
		}
	}
	return nil
}

// BuildID changes whenever one of the binaries that a lab runs does.
func (l *Lab) BuildID() (string, error) {
	sum := sha256.New()
	for _, name := range binaries() {
		f, err := os.Open(filepath.Join(l.Repo, name))
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, f)
		_ = f.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

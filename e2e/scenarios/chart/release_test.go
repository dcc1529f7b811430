//go:build e2e

package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/readme"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// version is that of the chart and of the image, whatever the programs say that they are.
const version = "v0.0.0-e2e"

func bin(l *lab.Lab, name string) string { return filepath.Join(l.Repo, "bin", name) }

// pushHub builds the hub's image of the programs in bin, and pushes it to the lab's registry.
func pushHub(ctx context.Context, l *lab.Lab) error { return push(ctx, l, bin(l, ""), version) }

// push builds the hub's image of the programs in a folder, and pushes it with the tag of a version.
func push(ctx context.Context, l *lab.Lab, dir, version string) error {
	programs := filepath.Join(l.Dir, "programs-"+version)
	links := map[string]string{"linux-" + runtime.GOARCH + "/hub": "hub"}
	for _, arch := range []string{"amd64", "arm64"} { // the image has the agents for both
		links["linux-"+arch+"/system-agent"] = "assets/system-agent-" + arch
	}
	for link, program := range links {
		path := filepath.Join(programs, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(dir, program), path); err != nil {
			return err
		}
	}
	cmd := imagesCommand(ctx, l, "--version", version, "--from", programs, "--only", "hub",
		"--push", strings.TrimPrefix(l.RegistryURL(), "http://"), "--insecure")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the hub's image: %w: %s", err, out)
	}
	return nil
}

// imagesCommand prepares the builder of images, for this machine's architecture. It runs in the repository, for the license there, and asks
// go for those of the modules in the programs.
func imagesCommand(ctx context.Context, l *lab.Lab, args ...string) *exec.Cmd {
	cmd := l.Command(ctx, append([]string{bin(l, "build-images"), "--arch", runtime.GOARCH}, args...)...)
	cmd.Dir = l.Repo
	for _, name := range []string{"PATH", "HOME", "GOPATH", "GOMODCACHE", "GOPROXY"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// makeFile runs a target of the Makefile for a version, and returns the path of the file that it writes below bin.
func makeFile(t *testing.T, target, version, file string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", shared.Repo, target, "VERSION="+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v: %s", target, err, out)
	}
	return bin(shared.Lab, file)
}

// program is the path of a program of bin, or of the hub's command line that is used instead.
func (m *management) program(name string) string {
	if name == "hub" && m.hub != "" {
		return m.hub
	}
	return bin(shared.Lab, name)
}

// run runs a program of bin as the administrator of the management cluster, and returns what it prints.
func (m *management) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := shared.Command(ctx, append([]string{m.program(program)}, args...)...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+m.kubeconfig, "HOME="+shared.Dir, "TERM=dumb")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v: %s", program, args[0], err, errs.String())
	}
	return out.String()
}

// helm runs helm for the release, in the hub's namespace.
func (m *management) helm(t *testing.T, args ...string) string {
	t.Helper()
	return m.run(t, "helm", append(args, "--namespace", namespace)...)
}

// script runs commands of the README as the administrator of the management cluster, and returns what they print. What only this lab needs
// is before them, such as functions that add a flag.
func (m *management) script(t *testing.T, script string, env ...string) string {
	t.Helper()
	tools := filepath.Join(shared.Dir, "tools")
	suite.Must(t, os.MkdirAll(tools, 0o755))
	for name, program := range map[string]string{"kubectl": "kubectl-1.36", "helm": "helm", "hub": "hub", "clusterctl": "clusterctl"} {
		if err := os.Symlink(bin(shared.Lab, program), filepath.Join(tools, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := shared.Command(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = shared.Dir
	path := strings.Join([]string{filepath.Dir(m.program("hub")), tools, os.Getenv("PATH")}, ":")
	cmd.Env = append(append(cmd.Env, "PATH="+path, "KUBECONFIG="+m.kubeconfig, "HOME="+shared.Dir, "TERM=dumb"), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s\n%v: %s", script, err, errs.String())
	}
	return out.String()
}

// install installs the chart as the README says, and waits until the hub is ready.
func (m *management) install(t *testing.T) {
	t.Helper()
	if m.chart == "" {
		m.chart = makeFile(t, "chart", version, "chart/drover-"+strings.TrimPrefix(version, "v")+".tgz")
	}
	script, err := readme.Script(shared.Repo, readme.Helm, "drover-0.1.0.tgz", m.chart, "cattle-system", namespace,
		"https://hub.example.com", m.url())
	suite.Must(t, err)
	began := time.Now()
	m.script(t, "helm() { command helm \"$@\" --values "+m.values(t)+" --wait --timeout 5m; }\n"+script)
	t.Logf("helm install took %.1f s", time.Since(began).Seconds())
}

// values writes the values that this cluster needs beside those of the README to a file.
func (m *management) values(t *testing.T) string {
	t.Helper()
	file := filepath.Join(shared.Dir, "values.yaml") // helm splits names of files at commas
	content := fmt.Sprintf("replicas: %d\nexposure: {type: nodePort, nodePort: %d}\n"+
		"tls: %s\nclusterctl: {inventory: true}\n", m.replicas, nodePort, m.tls)
	suite.Must(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

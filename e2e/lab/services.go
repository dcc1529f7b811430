package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// ServerURL is where machines and users reach the hub.
func (l *Lab) ServerURL() string {
	port := hubPort
	if l.line != nil {
		port = linePort
	}
	return fmt.Sprintf("https://%s:%d", l.HubIP(), port)
}

// RegistryURL is where machines reach the registry.
func (l *Lab) RegistryURL() string { return fmt.Sprintf("http://%s:%d", l.HubIP(), registryPort) }

func (l *Lab) dataDir() string { return filepath.Join(l.Dir, "hub") }

// Distro builds a version of the test distribution, unless the cache holds it, and returns the folder of its release.
func (l *Lab) Distro(ctx context.Context, version string) (string, error) {
	dir := filepath.Join(l.cache, "distro", version)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	if err := l.runTool(ctx, filepath.Join(l.Repo, "e2e/distro/build.sh"), dir); err != nil {
		return "", fmt.Errorf("building the test distribution: %w", err)
	}
	return dir, nil
}

// StartRegistry starts the lab's registry, unless it runs, and waits until it answers.
func (l *Lab) StartRegistry(ctx context.Context) error {
	if !l.Running(registryProc) {
		if err := l.PortFree(registryPort); err != nil {
			return err
		}
		err := l.Start(registryProc, nil, l.bin("lab"), "registry", "serve", "--dir", filepath.Join(l.Dir, "registry"),
			"--listen", fmt.Sprintf("%s:%d", l.HubIP(), registryPort))
		if err != nil {
			return err
		}
	}
	return l.answers(ctx, registryProc, l.RegistryURL()+"/v2/")
}

// Release makes a version of the test distribution one that clusters of this lab can run: it builds the installer image and
// pushes it to the registry.
func (l *Lab) Release(ctx context.Context, version string) error {
	release, err := l.Distro(ctx, version)
	if err != nil {
		return err
	}
	d := DistributionOf(version)
	argv := []string{l.bin("installer"), "build", "--runtime", d.Runtime, "--version", version, "--arch", "amd64", "--from", release,
		"--push", fmt.Sprintf("%s:%d/%s", l.HubIP(), registryPort, d.installerRepo()), "--insecure"}
	if err := l.runInLab(ctx, argv...); err != nil {
		return fmt.Errorf("building the installer image: %w", err)
	}
	return nil
}

// HubVersion is the version of the hub's program, which its agents have too.
func (l *Lab) HubVersion(ctx context.Context) (string, error) {
	out, err := l.Command(ctx, l.program("hub"), "version").Output()
	if err != nil {
		return "", fmt.Errorf("asking the hub for its version: %w", err)
	}
	words := strings.Fields(string(out))
	if len(words) < 2 {
		return "", fmt.Errorf("asking the hub for its version: it says %q", out)
	}
	return words[1], nil
}

// ReleaseClusterAgent builds the image of the cluster-agent that the hub puts into manifests, and pushes it to the registry.
func (l *Lab) ReleaseClusterAgent(ctx context.Context) error {
	version, err := l.HubVersion(ctx)
	if err != nil {
		return err
	}
	argv := []string{l.program("installer"), "build", "cluster-agent", "--version", version, "--arch", runtime.GOARCH,
		"--from", l.program("assets"),
		"--push", fmt.Sprintf("%s:%d/%s", l.HubIP(), registryPort, agentRepo), "--insecure"}
	if err := l.runInLab(ctx, argv...); err != nil {
		return fmt.Errorf("building the image of the cluster-agent: %w", err)
	}
	return nil
}

// StartHub starts the hub, unless it runs, and waits until its gateway is healthy.
func (l *Lab) StartHub(ctx context.Context) error {
	if !l.Running(hubProcess) {
		if err := l.PortFree(hubPort); err != nil {
			return err
		}
		err := l.Start(hubProcess, nil, l.program("hub"), "serve", "--data-dir", l.dataDir(), "--listen", fmt.Sprintf(":%d", hubPort),
			"--server-url", l.ServerURL(), "--assets-dir", l.program("assets"))
		if err != nil {
			return err
		}
	}
	return l.answers(ctx, hubProcess, fmt.Sprintf("https://%s:%d/healthz", l.HubIP(), hubPort))
}

// StopHub asks the hub to end and waits for it.
func (l *Lab) StopHub() error { return l.stopHub(context.Background(), time.Minute) }

// KillHub ends the hub as a crash does.
func (l *Lab) KillHub(ctx context.Context) error { return l.stopHub(ctx, -1) }

// stopHub returns when the kernel has taken back the hub's port, which may be after the process has ended.
func (l *Lab) stopHub(ctx context.Context, patience time.Duration) error {
	if err := l.Stop(hubProcess, patience); err != nil {
		return err
	}
	return l.WaitFor(ctx, "the port of the stopped hub is free", time.Minute, func(context.Context) (bool, string) {
		err := l.PortFree(hubPort)
		return err == nil, fmt.Sprint(err)
	})
}

// answers waits until a GET on url is answered with 200 by a process of the lab.
func (l *Lab) answers(ctx context.Context, process, url string) error {
	// Who answers in the lab's own network is not in doubt; machines check the certificate.
	client := l.httpClient(&tls.Config{InsecureSkipVerify: true})
	return l.WaitFor(ctx, process+" answers at "+url, 2*time.Minute, func(ctx context.Context) (bool, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err.Error()
		}
		resp, err := client.Do(req)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return false, process + " does not listen yet"
		}
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		if resp.StatusCode != http.StatusOK {
			return false, fmt.Sprintf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
		}
		return true, ""
	})
}

// Service is a background process of the lab.
type Service struct {
	Name, URL string
	Running   bool
}

// Services lists the processes of the lab itself.
func (l *Lab) Services() []Service {
	return []Service{
		{registryProc, l.RegistryURL(), l.Running(registryProc)},
		{hubProcess, l.ServerURL(), l.Running(hubProcess)},
		{providerProcess, "http://" + l.providerListen(), l.Running(providerProcess)},
	}
}

// HubRuns reports whether the hub runs.
func (l *Lab) HubRuns() bool { return l.Running(hubProcess) }

// ServicesRun reports whether registry and hub run.
func (l *Lab) ServicesRun() bool { return l.Running(registryProc) && l.Running(hubProcess) }

//go:build e2e

package scenarios

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// rancherDir is where Rancher's agent and script are, from the root of the repository. They are for tests only, and no part of it.
const rancherDir = "../shared/peers/rancher-system-agent"

// rancherPort is where the lab's machines download them, at the hub's address.
const rancherPort = 5080

// rancherFiles serves what Rancher publishes: its install script and its agent.
type rancherFiles struct{ url string }

// serveRancher serves them until the test ends. Where they are not there, the test is skipped, and fails on a build server.
func serveRancher(t *testing.T) *rancherFiles {
	t.Helper()
	dir := filepath.Join(shared.Repo, rancherDir)
	script, packed := filepath.Join(dir, "install.sh"), filepath.Join(dir, "rancher-system-agent-"+runtime.GOARCH+".xz")
	for _, file := range []string{script, packed} {
		if _, err := os.Stat(file); err != nil {
			missing := fmt.Sprintf("Rancher's agent and its install.sh are not beside this repository (%s): %v", rancherDir, err)
			if os.Getenv("CI") == "true" {
				t.Fatal(missing)
			}
			t.Skip(missing)
		}
	}
	suite.Must(t, hosts.EnsureTools(t.Context(), map[string]string{"xz": "xz-utils"}, func(string) {}))
	agent := filepath.Join(t.TempDir(), "rancher-system-agent")
	unpacked, err := os.Create(agent)
	suite.Must(t, err)
	unpack := exec.CommandContext(t.Context(), "xz", "-dc", packed)
	unpack.Stdout, unpack.Stderr = unpacked, os.Stderr
	suite.Must(t, unpack.Run())
	suite.Must(t, unpacked.Close())

	mux := http.NewServeMux()
	for path, file := range map[string]string{"/system-agent-install.sh": script, "/rancher-system-agent-" + runtime.GOARCH: agent} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	}
	listener, err := shared.Listen(rancherPort)
	suite.Must(t, err)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { _ = web.Close() })
	return &rancherFiles{url: "http://" + listener.Addr().String()}
}

// command is a registration command of this hub with Rancher's script in place of the hub's, and Rancher's agent for that to install. The
// uninstall script is this hub's, since there is no other.
func (f *rancherFiles) command(t *testing.T, command string) string {
	t.Helper()
	const script = "/system-agent-install.sh"
	for _, change := range [][2]string{
		{shared.ServerURL() + script, f.url + script},
		{"| sudo ", fmt.Sprintf("| sudo CATTLE_AGENT_BINARY_BASE_URL=%s CATTLE_AGENT_UNINSTALL_URL=%s/assets/system-agent-uninstall.sh ", f.url,
			shared.ServerURL())},
	} {
		if strings.Count(command, change[0]) != 1 {
			t.Fatalf("the registration command does not have %q once", change[0]) // the token is in it
		}
		command = strings.Replace(command, change[0], change[1], 1)
	}
	return command
}

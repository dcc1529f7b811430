//go:build e2e && full

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/readme"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestRelease makes a release twice, in different folders, and installs everything from its files with the commands of README and docs: a
// hub on one machine has a cluster of a machine with the agent's package; a hub that Helm installs there has a cluster of another machine;
// clusterctl installs the providers in that one.
func TestRelease(t *testing.T) {
	d := newDist(t)
	suite.Step(t, "the same commit gives the same files in another folder", func(t *testing.T) {
		d.dir = d.build(t, "first", "022", "TZ=UTC")
		n := checkSame(t, d.dir, d.build(t, "elsewhere/in/second", "077", "TZ=Pacific/Auckland"))
		t.Logf("%s has %d files", d.version, n)
	})
	suite.Step(t, "signature and checksums are verified", d.verify)
	m := &management{replicas: 2, tls: "{source: self}", downstream: client.ObjectKey{Namespace: "fleet-default", Name: "edge"}}
	suite.Step(t, "the programs say their version", func(t *testing.T) { m.hub = d.unpack(t) })
	suite.Step(t, "the images are copied from their archive to a registry", d.pushImages)
	hub := &packagedHub{}
	suite.Step(t, "the package of the hub runs a hub", func(t *testing.T) { hub.install(t, d) })
	suite.Step(t, "the package of the agent makes a machine a cluster of it", func(t *testing.T) {
		var err error
		m.host, err = shared.AddHost(t.Context(), "manager9")
		suite.Must(t, err)
		key := client.ObjectKey{Namespace: "fleet-default", Name: m.host.Name}
		hub.join(t, d, m.host, key)
		m.open(t, hub.api, key)
		checkAgent(t, m.host, d.version)
		waitClusterAgent(t, hub.api, key, d.version)
	})
	suite.Step(t, "helm installs the chart from a registry", func(t *testing.T) {
		m.createNamespace(t)
		m.installPushed(t, d)
		m.waitReplicas(t)
	})
	suite.Step(t, "a machine that runs the node command becomes a cluster of that hub", func(t *testing.T) {
		var err error
		m.machine, err = shared.AddHost(t.Context(), "edge9")
		suite.Must(t, err)
		m.makeDownstream(t)
		checkAgent(t, m.machine, d.version)
		waitClusterAgent(t, m.api, m.downstream, d.version)
		m.checkReachable(t)
	})
	suite.Step(t, "clusterctl installs the providers from their archive", func(t *testing.T) {
		edge := &management{host: m.machine, hub: m.hub}
		edge.open(t, m.api, m.downstream)
		r := &repository{management: edge, dir: filepath.Join(d.dir, "drover-clusterctl")}
		r.init(t, d.version)
	})
}

// pushImages copies the archive of images to the lab's registry, as docs/images.md says.
func (d *dist) pushImages(t *testing.T) {
	t.Helper()
	script, err := readme.PageScript(shared.Repo, "docs/images.md", "The bundle", "v1.2.3", d.version, "registry.example.com",
		strings.TrimPrefix(shared.RegistryURL(), "http://"))
	suite.Must(t, err)
	d.execute(t, shared.Repo, "tools/need.sh skopeo=skopeo")
	cmd := shared.Command(t.Context(), "bash", "-euc", "skopeo() { command skopeo \"$@\" --dest-tls-verify=false; }\n"+script)
	cmd.Dir = d.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", script, err, out)
	}
}

// installPushed pushes the chart to the lab's registry and installs it from there, as docs/chart.md says. The nodes pull the images by
// names for which they have a mirror.
func (m *management) installPushed(t *testing.T, d *dist) {
	t.Helper()
	script, err := readme.PageScript(shared.Repo, "docs/chart.md", "From a registry", "registry.example.com/drover/hub",
		"docker.io/drover/hub", "registry.example.com", strings.TrimPrefix(shared.RegistryURL(), "http://"), "1.2.3", d.number(),
		"cattle-system", namespace, "https://hub.example.com", m.url())
	suite.Must(t, err)
	m.script(t, fmt.Sprintf("cd '%s'\nhelm() { command helm \"$@\" --plain-http $flags; }\nflags=\n%s", d.dir, strings.Replace(script,
		"helm install", "flags='--values "+m.values(t)+" --wait --timeout 5m'\nhelm install", 1)))
}

// packagedHub is a hub that a host runs from its package.
type packagedHub struct {
	host *hosts.Host
	api  client.Client
}

// install installs the package and starts the hub, as the README says, and waits until it is ready.
func (h *packagedHub) install(t *testing.T, d *dist) {
	t.Helper()
	var err error
	h.host, err = shared.AddHost(t.Context(), "hub9")
	suite.Must(t, err)
	name := fmt.Sprintf("drover-hub_%s-1_%s.deb", d.number(), runtime.GOARCH)
	d.copyTo(t, h.host, name)
	script, err := readme.Script(shared.Repo, readme.OneMachine, "drover-hub_0.1.0-1_amd64.deb", name, "hub.example.com", h.host.IP().String())
	suite.Must(t, err)
	runOn(t, h.host, script+"hub version")
	suite.Must(t, shared.WaitFor(t.Context(), "the hub is ready", 2*time.Minute, func(ctx context.Context) (bool, string) {
		res, err := h.host.Exec(ctx, "curl", "-skf", "https://"+h.host.IP().String()+":8443/healthz")
		return err == nil && res.ExitCode == 0, fmt.Sprintf("%s%s (%v)", res.Stdout, res.Stderr, err)
	}))
	config, err := clientcmd.BuildConfigFromFlags("", h.host.Path("/var/lib/drover/hub/admin.kubeconfig"))
	suite.Must(t, err)
	config.Dial = h.host.Dial
	h.api, err = lab.NewClient(config)
	suite.Must(t, err)
}

// join creates a Cluster, and makes a host its machine with the package of the agent, as docs/packages.md says.
func (h *packagedHub) join(t *testing.T, d *dist, host *hosts.Host, key client.ObjectKey) {
	t.Helper()
	suite.Must(t, shared.ApplyCluster(t.Context(), h.api, key))
	command := runOn(t, h.host, "hub node-command "+key.String()+" "+strings.Join(lab.AllRoles, " "))
	match := regexp.MustCompile(`CATTLE_TOKEN=([^"]+)"(?s:.*)--ca-checksum (\w+)`).FindStringSubmatch(command)
	if match == nil {
		t.Fatalf("the node command has no token or no checksum: %d bytes", len(command))
	}
	name := fmt.Sprintf("drover-agent_%s-1_%s.deb", d.number(), runtime.GOARCH)
	d.copyTo(t, host, name)
	suite.Must(t, os.WriteFile(host.Path("/root/token"), []byte(match[1]), 0o600))
	script, err := readme.PageScript(shared.Repo, "docs/packages.md", "The agent", "drover-agent_1.2.3-1_amd64.deb", name,
		"https://hub.example.com", "https://"+h.host.IP().String()+":8443", "2c5f...", match[2], "--worker", strings.Join(lab.AllRoles, " "))
	suite.Must(t, err)
	runOn(t, host, script)
	suite.Must(t, shared.WaitClusterReady(t.Context(), h.api, key, 5*time.Minute))
	suite.Must(t, shared.WaitConnected(t.Context(), h.api, key, 3*time.Minute))
}

// copyTo puts a file of the release into /root of a host.
func (d *dist) copyTo(t *testing.T, host *hosts.Host, name string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(d.dir, name))
	suite.Must(t, err)
	suite.Must(t, os.WriteFile(host.Path("/root/"+name), raw, 0o600))
}

// runOn runs a script on a host, in /root, and returns what it prints.
func runOn(t *testing.T, host *hosts.Host, script string) string {
	t.Helper()
	res, err := host.Script(t.Context(), "set -eu; cd /root\n"+script+"\n", nil)
	suite.Must(t, err)
	if res.ExitCode != 0 {
		t.Fatalf("%s\non %s ends with %d: %s%s", script, host.Name, res.ExitCode, res.Stdout, res.Stderr)
	}
	return res.Stdout
}

//go:build e2e

package access

import (
	"context"
	_ "embed"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

const namespace = "fleet-default"

//go:embed testdata/inside.yaml
var insideYAML string

// closedCluster is a cluster behind a firewall, which the first test that needs it makes.
type closedCluster struct {
	distribution lab.Distribution
	key          client.ObjectKey
	once         sync.Once
	host         *hosts.Host
	user         *user // nil until all is done
}

// inside runs what a lab's clusters run.
var inside = &closedCluster{distribution: lab.K3s, key: client.ObjectKey{Namespace: namespace, Name: "inside"}}

// use returns the machine behind the firewall and a user of its cluster, in which the toolbox runs.
func (c *closedCluster) use(t *testing.T) (*hosts.Host, user) {
	t.Helper()
	c.once.Do(func() { c.make(t) })
	if c.user == nil {
		t.Fatal("the cluster behind the firewall could not be made, see above")
	}
	return c.host, *c.user
}

func (c *closedCluster) make(t *testing.T) {
	c.host = closedHost(t, c.key.Name+"1")
	suite.Step(t, "a machine that drops incoming connections becomes a cluster", func(t *testing.T) {
		shared.MakeNamespace(t, namespace)
		cluster := &provisioningv1.Cluster{}
		text := strings.NewReplacer("NAME", c.key.Name, "VERSION", c.distribution.Version, "REGISTRY", shared.RegistryURL()).Replace(insideYAML)
		suite.Must(t, yaml.UnmarshalStrict([]byte(text), cluster))
		suite.Must(t, shared.Hub.Create(t.Context(), cluster))
		command, err := shared.NodeCommand(t.Context(), c.key, lab.AllRoles...)
		suite.Must(t, err)
		plant(t, "a registration token", registrationRE.FindString(command))
		suite.Must(t, shared.Register(t.Context(), c.host, command))
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, c.key, 5*time.Minute))
		waitConnected(t, c.key)
	})
	suite.Step(t, "nobody can connect to it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if conn, err := shared.Dial(ctx, "tcp", net.JoinHostPort(c.host.IP().String(), "6443")); err == nil {
			_ = conn.Close()
			t.Error("the hub's network reaches its API server")
		}
	})
	u := newUser(t, c.key.Name, "kubectl-1.36")
	suite.Step(t, "hub kubeconfig makes a kubeconfig that is its user's alone", func(t *testing.T) { u.getKubeconfig(t, c.key) })
	suite.Step(t, "a workload runs", func(t *testing.T) { deploy(t, u) })
	c.user = &u
}

// closedHost makes a host that connections leave but do not enter. It goes with the lab: several tests use one cluster.
func closedHost(t *testing.T, name string) *hosts.Host {
	t.Helper()
	host, err := shared.AddHost(t.Context(), name)
	suite.Must(t, err)
	suite.Must(t, host.CloseIncoming(t.Context()))
	return host
}

// waitConnected waits until the Cluster says that its agent is connected.
func waitConnected(t *testing.T, key client.ObjectKey) {
	t.Helper()
	suite.Must(t, shared.WaitConnected(t.Context(), shared.Hub, key, 3*time.Minute))
}

// newUser is a user with a kubeconfig of his own.
func newUser(t *testing.T, name, kubectl string) user {
	t.Helper()
	u := user{name: name, kubectl: kubectl}
	suite.Must(t, os.MkdirAll(u.home(), 0o700))
	return u
}

// getKubeconfig asks the hub's command line for a kubeconfig, as somebody who administers the hub.
func (u user) getKubeconfig(t *testing.T, cluster client.ObjectKey, flags ...string) {
	t.Helper()
	args := append([]string{"kubeconfig", cluster.String(), "--kubeconfig", shared.HubKubeconfig(), "--output", u.kubeconfig()}, flags...)
	if out, err := u.command(t.Context(), "hub", args...).CombinedOutput(); err != nil {
		t.Fatalf("hub %s: %v: %s", strings.Join(args, " "), err, out)
	}
	info, err := os.Stat(u.kubeconfig())
	suite.Must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the kubeconfig: %s", info.Mode())
	}
}

func (u user) home() string       { return filepath.Join(shared.Dir, "users", u.name) }
func (u user) kubeconfig() string { return filepath.Join(u.home(), "kubeconfig") }

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

	"k8s.io/apimachinery/pkg/api/meta"
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

// insideKey is the cluster behind the firewall, which the first test that needs it makes.
var (
	insideKey  = client.ObjectKey{Namespace: namespace, Name: "inside"}
	insideOnce sync.Once
	insideHost *hosts.Host
	insideUser *user // nil until all is done
)

// inside returns the machine behind the firewall and a user of its cluster, in which the toolbox runs.
func inside(t *testing.T) (*hosts.Host, user) {
	t.Helper()
	insideOnce.Do(func() { makeInside(t) })
	if insideUser == nil {
		t.Fatal("the cluster behind the firewall could not be made, see above")
	}
	return insideHost, *insideUser
}

func makeInside(t *testing.T) {
	insideHost = closedHost(t, "inside1")
	suite.Step(t, "a machine that drops incoming connections becomes a cluster", func(t *testing.T) {
		shared.MakeNamespace(t, namespace)
		cluster := &provisioningv1.Cluster{}
		text := strings.NewReplacer("VERSION", lab.Version, "REGISTRY", shared.RegistryURL()).Replace(insideYAML)
		suite.Must(t, yaml.UnmarshalStrict([]byte(text), cluster))
		suite.Must(t, shared.Hub.Create(t.Context(), cluster))
		command, err := shared.NodeCommand(t.Context(), insideKey, lab.AllRoles...)
		suite.Must(t, err)
		plant(t, "a registration token", registrationRE.FindString(command))
		suite.Must(t, shared.Register(t.Context(), insideHost, command))
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, insideKey, 5*time.Minute))
		waitConnected(t, insideKey)
	})
	suite.Step(t, "nobody can connect to it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if conn, err := shared.Dial(ctx, "tcp", net.JoinHostPort(insideHost.IP().String(), "6443")); err == nil {
			_ = conn.Close()
			t.Error("the hub's network reaches its API server")
		}
	})
	u := newUser(t, "inside", "kubectl-1.36")
	suite.Step(t, "hub kubeconfig makes a kubeconfig that is its user's alone", func(t *testing.T) { u.getKubeconfig(t, insideKey) })
	suite.Step(t, "a workload runs", func(t *testing.T) { deploy(t, u) })
	insideUser = &u
}

// closedHost makes a host that connections leave but do not enter.
func closedHost(t *testing.T, name string) *hosts.Host {
	t.Helper()
	host := shared.NewHost(t, name)
	suite.Must(t, host.CloseIncoming(t.Context()))
	return host
}

// waitConnected waits until the Cluster says that its agent is connected. It does not say so at once of one that was lost several times.
func waitConnected(t *testing.T, key client.ObjectKey) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), key.String()+" is connected", 3*time.Minute, func(ctx context.Context) (bool, string) {
		cluster := &provisioningv1.Cluster{}
		if err := shared.Hub.Get(ctx, key, cluster); err != nil {
			return false, err.Error()
		}
		for _, kind := range []string{provisioningv1.ConnectedCondition, provisioningv1.AgentDeployedCondition} {
			if !meta.IsStatusConditionTrue(cluster.Status.Conditions, kind) {
				return false, lab.ConditionMessage(cluster.Status.Conditions, kind)
			}
		}
		return cluster.Status.AgentDeployed, "status.agentDeployed is not true"
	}))
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

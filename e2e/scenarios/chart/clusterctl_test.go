//go:build e2e && full

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// hubNamespace is where clusterctl puts all providers.
const hubNamespace = "cattle-system"

var providers = []string{"--bootstrap", "drover", "--control-plane", "drover", "--infrastructure", "drover"}

// TestClusterctl installs the providers with upstream's clusterctl, makes a cluster from the template, uses it, upgrades the providers, and
// deletes and installs them again: the cluster goes on.
func TestClusterctl(t *testing.T) {
	m := &management{downstream: client.ObjectKey{Namespace: "fleet-default", Name: "edge"}}
	m.makeCluster(t, "manager2", "edge2")
	r := newRepository(t, m)
	suite.Step(t, "clusterctl init installs the providers", func(t *testing.T) {
		r.init(t, firstVersion)
	})
	suite.Step(t, "a machine becomes the cluster that clusterctl generates", func(t *testing.T) {
		r.makeDownstream(t)
	})
	suite.Step(t, "clusterctl describes the cluster and gets its kubeconfig", r.checkCluster)
	var attempts int
	var started string
	suite.Step(t, "clusterctl upgrade replaces the providers, and no plan is applied", func(t *testing.T) {
		attempts, started = m.waitQuiet(t), m.serverStarted(t)
		suite.Must(t, push(t.Context(), shared.Lab, bin(shared.Lab, ""), nextVersion))
		r.unpack(t, nextVersion)
		plan := r.clusterctl(t, "upgrade", "plan")
		for _, name := range []string{"bootstrap-drover", "control-plane-drover", "infrastructure-drover"} {
			if line := lineOf(plan, name); !strings.Contains(line, firstVersion) || !strings.Contains(line, nextVersion) {
				t.Errorf("clusterctl upgrade plan says of %s %q", name, line)
			}
		}
		r.clusterctl(t, "upgrade", "apply", "--contract", "v1beta2", "--wait-providers")
		r.waitProviders(t, nextVersion)
		m.checkUnchanged(t, attempts, started)
	})
	suite.Step(t, "clusterctl move writes the cluster to files", func(t *testing.T) {
		dir := filepath.Join(shared.Dir, "moved")
		suite.Must(t, os.Mkdir(dir, 0o700))
		r.clusterctl(t, "move", "--namespace", m.downstream.Namespace, "--to-directory", dir)
		r.checkMoved(t, dir)
	})
	suite.Step(t, "clusterctl delete leaves the cluster, and clusterctl init finds it as it was", func(t *testing.T) {
		r.clusterctl(t, append([]string{"delete"}, providers...)...)
		r.checkDeleted(t)
		r.clusterctl(t, append([]string{"init", "--wait-providers"}, providers...)...)
		r.waitProviders(t, nextVersion)
		suite.Must(t, shared.WaitClusterReady(t.Context(), m.api, m.downstream, 3*time.Minute))
		m.checkUnchanged(t, attempts, started)
		r.checkCluster(t)
	})
}

// makeDownstream applies what clusterctl generates, with the lab's registry, and registers the machine.
func (r *repository) makeDownstream(t *testing.T) {
	t.Helper()
	m := r.management
	generated := r.clusterctl(t, "generate", "cluster", m.downstream.Name, "--infrastructure", "drover", "--target-namespace",
		m.downstream.Namespace, "--kubernetes-version", lab.Version)
	manifest := strings.Replace(generated, "rkeConfig: {}", mirrored(), 1)
	if manifest == generated {
		t.Fatalf("clusterctl generates\n%s", generated)
	}
	file := filepath.Join(shared.Dir, "generated.yaml")
	suite.Must(t, os.WriteFile(file, []byte(manifest), 0o600))
	suite.Must(t, m.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.downstream.Namespace}}))
	shared.RunKubectl(t, m.kubeconfig, "apply", "--filename", file)
	command := m.run(t, "hub", append([]string{"node-command", m.downstream.String(), "--kubeconfig", m.kubeconfig}, lab.AllRoles...)...)
	suite.Must(t, shared.Register(t.Context(), m.machine, command))
	suite.Must(t, shared.WaitClusterReady(t.Context(), m.api, m.downstream, 5*time.Minute))
	suite.Must(t, shared.WaitConnected(t.Context(), m.api, m.downstream, 3*time.Minute))
}

// checkCluster uses the cluster with the kubeconfig that clusterctl gets.
func (r *repository) checkCluster(t *testing.T) {
	m := r.management
	described := r.clusterctl(t, "describe", "cluster", m.downstream.Name, "--namespace", m.downstream.Namespace)
	for _, want := range []string{
		"RKECluster " + m.downstream.String(), "RKEControlPlane " + m.downstream.String(), "Machine " + m.downstream.Namespace,
	} {
		if !strings.Contains(described, want) {
			t.Errorf("clusterctl describe does not show %s:\n%s", want, described)
		}
	}
	kubeconfig := filepath.Join(shared.Dir, "clusterctl.kubeconfig")
	suite.Must(t, os.WriteFile(kubeconfig, []byte(r.clusterctl(t, "get", "kubeconfig", m.downstream.Name, "--namespace",
		m.downstream.Namespace)), 0o600))
	suite.Must(t, shared.WaitFor(t.Context(), "the cluster answers", time.Minute, func(ctx context.Context) (bool, string) {
		out, err := shared.TryKubectl(ctx, kubeconfig, "get", "nodes", "--output", "name")
		return err == nil && out == "node/"+m.machine.Name+"\n", fmt.Sprintf("%s (%v)", out, err)
	}))
	r.checkRights(t)
}

// checkMoved checks that what clusterctl has written contains the cluster and no credentials of agents.
func (r *repository) checkMoved(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	suite.Must(t, err)
	var names strings.Builder
	for _, entry := range entries {
		names.WriteString(entry.Name() + "\n")
	}
	// Nothing can be said of Clusters: clusterctl names files by kind, and the two kinds of that name have one file (docs/clusterctl.md).
	for _, want := range []string{"RKECluster_", "RKEControlPlane_", "RKEBootstrap_", "CustomMachine_", "Machine_"} {
		if !strings.Contains(names.String(), want) {
			t.Errorf("there is no file of %s:\n%s", want, names.String())
		}
	}
	for _, left := range []string{"TunnelAgent_", "ClusterRegistrationToken_", "Token_"} {
		if strings.Contains(names.String(), left) {
			t.Errorf("there is a file of %s:\n%s", left, names.String())
		}
	}
}

// checkDeleted checks that the Deployments and the webhooks are gone, and the cluster is not.
func (r *repository) checkDeleted(t *testing.T) {
	t.Helper()
	m := r.management
	suite.Must(t, shared.WaitFor(t.Context(), "the providers are gone", 2*time.Minute, func(ctx context.Context) (bool, string) {
		pods, deployments := &corev1.PodList{}, &appsv1.DeploymentList{}
		for _, list := range []client.ObjectList{pods, deployments} {
			if err := m.api.List(ctx, list, client.InNamespace(hubNamespace), client.HasLabels{"cluster.x-k8s.io/provider"}); err != nil {
				return false, err.Error()
			}
		}
		webhooks, err := m.webhooks(ctx)
		return err == nil && len(pods.Items)+len(deployments.Items) == 0 && webhooks == "",
			fmt.Sprintf("%d Pods, %d Deployments, webhooks %s (%v)", len(pods.Items), len(deployments.Items), webhooks, err)
	}))
	suite.Must(t, m.api.Get(t.Context(), client.ObjectKey{Namespace: hubNamespace, Name: "drover-gateway-tls"}, &corev1.Secret{}))
	shared.RunKubectl(t, m.kubeconfig, "--namespace", m.downstream.Namespace, "get", "clusters.provisioning.cattle.io", m.downstream.Name)
}

func lineOf(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return ""
}

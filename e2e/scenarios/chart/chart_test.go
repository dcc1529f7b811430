//go:build e2e

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestChart installs the hub with Helm, makes a cluster with it, removes the hub, and installs it again: the cluster goes on, and the hub
// finds it as it was.
func TestChart(t *testing.T) {
	cluster.use(t)
	var attempts int
	var started, manifest string
	suite.Step(t, "helm uninstall removes what the chart made, and nothing that users made", func(t *testing.T) {
		attempts, started = cluster.waitQuiet(t), cluster.serverStarted(t)
		manifest = cluster.helm(t, "get", "manifest", release)
		cluster.helm(t, "uninstall", release, "--wait", "--timeout", "3m")
		cluster.checkUninstalled(t, manifest)
	})
	suite.Step(t, "installed again, the hub finds the cluster as it was", func(t *testing.T) {
		cluster.install(t)
		cluster.waitReplicas(t)
		suite.Must(t, shared.WaitClusterReady(t.Context(), cluster.api, cluster.downstream, 3*time.Minute))
		cluster.checkReachable(t)
		cluster.checkUnchanged(t, attempts, started)
	})
}

// checkUninstalled checks that all objects of a manifest are gone, also the Pods, and that the definitions, the Cluster and the authority
// that machines trust are there.
func (m *management) checkUninstalled(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(shared.Dir, "manifest.yaml") // kubectl splits names of files at commas
	suite.Must(t, os.WriteFile(file, []byte(manifest), 0o600))
	if left := shared.RunKubectl(t, m.kubeconfig, "get", "--filename", file, "--ignore-not-found", "--output", "name"); left != "" {
		t.Errorf("left after helm uninstall:\n%s", left)
	}
	suite.Must(t, shared.WaitFor(t.Context(), "the Pods are gone", 2*time.Minute, func(ctx context.Context) (bool, string) {
		pods := &corev1.PodList{}
		if err := m.api.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return false, err.Error()
		}
		return len(pods.Items) == 0, "there are still Pods"
	}))
	suite.Must(t, shared.WaitFor(t.Context(), "the webhooks are gone", time.Minute, func(ctx context.Context) (bool, string) {
		webhooks, err := m.webhooks(ctx)
		return err == nil && webhooks == "", fmt.Sprintf("%s (%v)", webhooks, err)
	}))
	suite.Must(t, m.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "drover-gateway-tls"}, &corev1.Secret{}))
	definitions := shared.RunKubectl(t, m.kubeconfig, "get", "customresourcedefinitions", "--output", "name")
	for _, name := range []string{"clusters.provisioning.cattle.io", "clusters.cluster.x-k8s.io", "clusters.management.cattle.io"} {
		if !strings.Contains(definitions, "/"+name+"\n") {
			t.Errorf("the definition %s is gone", name)
		}
	}
	c := &provisioningv1.Cluster{}
	if err := m.api.Get(t.Context(), m.downstream, c); apierrors.IsNotFound(err) || c.DeletionTimestamp != nil {
		t.Errorf("the Cluster is gone: %v", err)
	}
}

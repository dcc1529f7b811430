//go:build e2e

package chart

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// hubName is the name of the Deployment and of the leader's Lease.
const hubName = "drover-hub"

// waitReplicas waits until all replicas are ready and those of an earlier version are gone.
func (m *management) waitReplicas(t *testing.T) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "all replicas are ready", 3*time.Minute, func(ctx context.Context) (bool, string) {
		d, pods := &appsv1.Deployment{}, &corev1.PodList{}
		if err := m.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hubName}, d); err != nil {
			return false, err.Error()
		}
		if err := m.api.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return false, err.Error()
		}
		current := d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == m.replicas
		ready := current && d.Status.ReadyReplicas == m.replicas && len(pods.Items) == int(m.replicas)
		return ready, fmt.Sprintf("%d Pods, %+v", len(pods.Items), d.Status)
	}))
}

// leader is the Pod whose controllers run, or empty.
func (m *management) leader(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := m.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hubName}, lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod, nil
}

// checkReachable opens the downstream cluster with a kubeconfig of the hub's command line, through the gateway.
func (m *management) checkReachable(t *testing.T) {
	t.Helper()
	kubeconfig := m.userKubeconfig(t)
	suite.Must(t, shared.WaitConnected(t.Context(), m.api, m.downstream, 3*time.Minute))
	// After a start of the hub, kube-proxy needs some seconds to lead the NodePort to its Pods, and the agent to connect again.
	var out string
	answers := func(ctx context.Context) (bool, string) {
		var err error
		out, err = shared.TryKubectl(ctx, kubeconfig, "get", "nodes", "--output", "name")
		return err == nil, out
	}
	suite.Must(t, shared.WaitFor(t.Context(), "the cluster answers through the gateway", time.Minute, answers))
	if out != "node/"+m.machine.Name+"\n" {
		t.Errorf("kubectl get nodes says %q", out)
	}
	server := shared.RunKubectl(t, kubeconfig, "config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}")
	if !strings.HasPrefix(server, m.url()+"/") {
		t.Errorf("the kubeconfig leads to %s and not to the gateway", server)
	}
}

// userKubeconfig writes a kubeconfig that leads to the downstream cluster through the gateway, and returns its file.
func (m *management) userKubeconfig(t *testing.T, flags ...string) string {
	t.Helper()
	file := filepath.Join(shared.Dir, m.host.Name+"-"+m.downstream.Name+strings.Join(flags, "")+".kubeconfig")
	m.run(t, "hub", append([]string{"kubeconfig", m.downstream.String(), "--kubeconfig", m.kubeconfig, "--system-namespace", namespace,
		"--output", file}, flags...)...)
	return file
}

// attempts are how often the agent of the machine has begun to apply a plan.
func (m *management) attempts(t *testing.T) int {
	t.Helper()
	var journal bytes.Buffer
	suite.Must(t, m.machine.Logs(t.Context(), &journal, agentUnit))
	n := strings.Count(journal.String(), "Applying plan")
	if n == 0 {
		t.Fatal("the journal of the agent tells of no plan")
	}
	return n
}

// waitQuiet waits until the agent has begun no plan for a while: the hub delivers some after the Cluster is Ready.
func (m *management) waitQuiet(t *testing.T) int {
	t.Helper()
	last, since := m.attempts(t), time.Now()
	for began := time.Now(); time.Since(since) < 10*time.Second; time.Sleep(time.Second) {
		if now := m.attempts(t); now != last {
			last, since = now, time.Now()
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("plans are applied again and again: %d", last)
		}
	}
	return last
}

// checkAttempts fails the test if the agent has begun a plan since there were so many attempts.
func (m *management) checkAttempts(t *testing.T, before int) {
	t.Helper()
	if after := m.waitQuiet(t); after != before {
		t.Errorf("plans were applied %d times although nothing has changed in the Cluster", after-before)
	}
}

// serverStarted is when the server of the machine was started; it changes with each restart.
func (m *management) serverStarted(t *testing.T) string { return startOf(t, m.machine, "k3s") }

// startOf is when a unit of a host was started; it changes with each restart.
func startOf(t *testing.T, host *hosts.Host, unit string) string {
	t.Helper()
	res, err := host.Exec(t.Context(), "systemctl", "show", "--property=ActiveEnterTimestampMonotonic,MainPID", unit)
	suite.Must(t, err)
	return res.Stdout
}

// checkUnchanged fails the test if the agent has begun a plan, or the server was restarted, since then.
func (m *management) checkUnchanged(t *testing.T, attempts int, started string) {
	t.Helper()
	m.checkAttempts(t, attempts)
	if now := m.serverStarted(t); now != started {
		t.Errorf("the server of the machine was restarted: %s, was %s", now, started)
	}
}

// webhooks lists the webhook configurations of the hub.
func (m *management) webhooks(ctx context.Context) (string, error) {
	return shared.TryKubectl(ctx, m.kubeconfig, "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--output", "name",
		"--field-selector", "metadata.name=drover-capi")
}

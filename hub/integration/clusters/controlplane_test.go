package clusters

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// TestInfrastructureContract: a plan waits for the status of its machine's infrastructure and contains it; the cluster's endpoint is used;
// a paused cluster gets no plans; and later changes of the status restart nothing.
func TestInfrastructureContract(t *testing.T) {
	t.Parallel()
	w := newControlPlaneCluster(t, "192.0.2.10")
	server := w.machine("server", "etcd", "control-plane")
	worker := w.machine("worker", "worker")
	message := testenv.Condition(t, env, server.machine, rkev1.ReconciledCondition, metav1.ConditionUnknown, "WaitingForInfrastructure")
	if want := "The machine has no infrastructure yet: PlaneMachine server is not provisioned"; message != want {
		t.Errorf("it waits for %q, want %q", message, want)
	}
	w.setStatus(server.infrastructure, map[string]any{"failureReason": "CreateError", "failureMessage": "no capacity"})
	testenv.Until(t, "the failure of the provider in what the machine waits for", func() error {
		message := testenv.Condition(t, env, server.machine, rkev1.ReconciledCondition, metav1.ConditionUnknown, "WaitingForInfrastructure")
		if !strings.HasSuffix(message, "is not provisioned; its provider says: no capacity") {
			return errors.New(message)
		}
		return nil
	})
	testenv.Condition(t, env, w.plane, clusterv1.AvailableCondition, metav1.ConditionFalse, clusterv1.NotAvailableReason)

	// The endpoint's own address is on the server, and none of its own.
	server.reportReady("192.0.2.10", "10.9.0.1", "10.42.0.1")
	config := server.awaitConfig()
	for key, want := range map[string]any{"cluster-init": true, "server": nil, "node-ip": []any{"10.9.0.1"}, "tls-san": []any{"192.0.2.10"}} {
		if diff := cmp.Diff(want, config[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	if arguments, _ := config["kubelet-arg"].([]any); !slices.Contains(arguments, any("provider-id=plane://server")) {
		t.Errorf("the kubelet has arguments %v", config["kubelet-arg"])
	}
	testenv.Condition(t, env, w.plane, clusterv1.ScalingUpCondition, metav1.ConditionTrue, clusterv1.ScalingUpReason)
	server.reportApplied()
	testenv.Condition(t, env, w.plane, clusterv1.AvailableCondition, metav1.ConditionTrue, clusterv1.AvailableReason)
	w.awaitKubeconfigServer("https://192.0.2.10:6443")
	testenv.Until(t, "the server's join URL", func() error {
		if got := server.secret().Annotations[rkev1.JoinURLAnnotation]; got != "https://10.9.0.1:6443" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})

	testenv.Until(t, "the worker's plan Secret", func() error {
		return env.Client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: rkev1.PlanSecretName("worker")}, &corev1.Secret{})
	})
	testenv.Change(t, env, w.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	testenv.Condition(t, env, w.plane, clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason)
	worker.reportReady("10.9.0.2")
	time.Sleep(time.Second)
	if len(worker.secret().Data[plans.KeyPlan]) > 0 {
		t.Error("a plan was delivered while the cluster is paused")
	}
	env.Get(t, w.namespace, "c", w.cluster)
	testenv.Change(t, env, w.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
	if got := worker.awaitConfig()["server"]; got != "https://10.9.0.1:6443" {
		t.Errorf("the worker joins %v", got)
	}
	worker.reportApplied()
	testenv.Condition(t, env, w.plane, rkev1.StableCondition, metav1.ConditionTrue, "Stable")

	before := server.secret().Data[plans.KeyPlan]
	server.reportAddresses("10.77.0.1", "10.9.0.1", "192.0.2.10")
	testenv.Until(t, "Cluster API to take over the addresses", func() error {
		env.Get(t, w.namespace, "server", server.machine)
		if len(server.machine.Status.Addresses) == 0 || server.machine.Status.Addresses[0].Address != "10.77.0.1" {
			return fmt.Errorf("they are %v", server.machine.Status.Addresses)
		}
		return nil
	})
	time.Sleep(time.Second)
	if diff := cmp.Diff(string(before), string(server.secret().Data[plans.KeyPlan])); diff != "" {
		t.Errorf("another order of addresses changed the plan:\n%s", diff)
	}
	testenv.Until(t, "the status to count the server", func() error {
		env.Get(t, w.namespace, "c", w.plane)
		if s := w.plane.Status; ptr.Deref(s.Replicas, 0) != 1 || ptr.Deref(s.UpToDateReplicas, 0) != 1 ||
			ptr.Deref(s.ExternalManagedControlPlane, true) {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
}

func (w *controlPlaneCluster) awaitKubeconfigServer(url string) {
	w.t.Helper()
	testenv.Until(w.t, "the kubeconfig", func() error {
		secret := &corev1.Secret{}
		if err := env.Client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "c-kubeconfig"}, secret); err != nil {
			return err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
		if err != nil {
			return err
		}
		if config.Host != url {
			return fmt.Errorf("it leads to %s", config.Host)
		}
		return nil
	})
}

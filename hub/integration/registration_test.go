package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// register creates a machine request as the gateway does, and returns it once it is answered.
func (e *hubEnv) register(t *testing.T, cluster *provisioningv1.Cluster, id string, headers map[string]string) *corev1.Secret {
	t.Helper()
	lists := map[string][]string{rkev1.HeaderID: {id}}
	for name, value := range headers {
		lists[name] = []string{value}
	}
	data, err := json.Marshal(lists)
	if err != nil {
		t.Fatal(err)
	}
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Annotations[rkev1.ManagementClusterNameAnnotation], Name: rkev1.MachineRequestName(id)},
		Type:       rkev1.MachineRequestSecretType,
		Data:       map[string][]byte{rkev1.MachineRequestDataKey: data},
	}
	e.create(t, request)
	until(t, "an answer to the machine request", func() error {
		e.get(t, request.Namespace, request.Name, request)
		if request.Labels[rkev1.MachineNameLabel] == "" && request.Annotations[rkev1.MachineRequestErrorAnnotation] == "" {
			return errors.New("there is none")
		}
		return nil
	})
	if err := e.Client.Delete(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return request
}

// newReadyCluster creates a Cluster and waits until machines can join it.
func (e *hubEnv) newReadyCluster(t *testing.T, namespace, name string) *provisioningv1.Cluster {
	t.Helper()
	cluster := newCluster(namespace, name)
	e.create(t, cluster)
	condition(t, e, cluster, "Ready", metav1.ConditionUnknown, "WaitingForMachines")
	until(t, "the management namespace", func() error {
		return e.Client.Get(t.Context(), client.ObjectKey{Name: cluster.Annotations[rkev1.ManagementClusterNameAnnotation]}, &corev1.Namespace{})
	})
	return cluster
}

var allRoles = map[string]string{
	rkev1.HeaderRoleEtcd: "true", rkev1.HeaderRoleControlPlane: "true", rkev1.HeaderRoleWorker: "true",
	rkev1.HeaderDetectedAddress:   "192.0.2.7",
	rkev1.HeaderMachineSecretHash: "hash", rkev1.HeaderLabels: "cattle.io/os=linux,zone=a", rkev1.HeaderTaints: "k=v:NoSchedule",
}

// TestMachineRequest: from a machine request, the hub creates a Machine with all objects that Cluster API and the machine need.
func TestMachineRequest(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)
	cluster := env.newReadyCluster(t, namespace, "reg")
	answer := env.register(t, cluster, "machine-one", allRoles)
	name := answer.Labels[rkev1.MachineNameLabel]
	if name != rkev1.MachineRequestName("machine-one") || answer.Labels[rkev1.MachineNamespaceLabel] != namespace {
		t.Fatalf("the answer is %v, %v", answer.Labels, answer.Annotations)
	}

	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	condition(t, env, bootstrap, "Ready", metav1.ConditionTrue, "")
	custom := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if message := condition(t, env, custom, "Ready", metav1.ConditionFalse, "WaitingForControlPlane"); message == "" {
		t.Error("the CustomMachine does not say what it waits for")
	}
	machine := &clusterv1.Machine{}
	until(t, "Cluster API to take the bootstrap data", func() error {
		env.get(t, namespace, name, machine)
		if machine.Spec.Bootstrap.DataSecretName == nil {
			return fmt.Errorf("the Machine has %+v", machine.Status)
		}
		return nil
	})
	for _, label := range []string{rkev1.EtcdRoleLabel, rkev1.ControlPlaneRoleLabel, rkev1.WorkerRoleLabel} {
		if machine.Labels[label] != "true" {
			t.Errorf("the Machine lacks the label %s", label)
		}
	}
	if _, ok := machine.Labels[clusterv1.MachineControlPlaneLabel]; !ok || machine.Labels["zone"] != "a" {
		t.Errorf("the Machine has the labels %v", machine.Labels)
	}
	data := &corev1.Secret{}
	env.get(t, namespace, *machine.Spec.Bootstrap.DataSecretName, data)
	if script := string(data.Data["value"]); !strings.Contains(script, env.ServerURL) || strings.Contains(script, "CATTLE_TOKEN='") {
		t.Error("the bootstrap data of a machine that registered itself lack the hub's URL, or hold a credential")
	}
	plan := &corev1.Secret{}
	env.get(t, namespace, rkev1.PlanSecretName(name), plan)
	if plan.Type != rkev1.MachinePlanSecretType || plan.Annotations[rkev1.DetectedAddressAnnotation] != "192.0.2.7" ||
		plan.Annotations[rkev1.MachineSecretHashAnnotation] != "" {
		t.Errorf("the plan Secret has type %s and annotations %v", plan.Type, plan.Annotations)
	}
	env.checkNoRights(t, namespace, name)

	// The machine comes again.
	if again := env.register(t, cluster, "machine-one", allRoles); again.Labels[rkev1.MachineNameLabel] != name {
		t.Errorf("a machine that proves itself is answered %v", again.Annotations)
	}
	// Somebody who knows its ID comes.
	thief := map[string]string{rkev1.HeaderRoleWorker: "true", rkev1.HeaderMachineSecretHash: "another"}
	if answer := env.register(t, cluster, "machine-one", thief); answer.Labels[rkev1.MachineNameLabel] != "" {
		t.Error("a machine that cannot prove itself was given another's identity")
	}
	delete(thief, rkev1.HeaderMachineSecretHash)
	if answer := env.register(t, cluster, "machine-one", thief); answer.Labels[rkev1.MachineNameLabel] != "" {
		t.Error("a machine without a secret was given another's identity")
	}
	for headers, want := range map[string]string{rkev1.HeaderNodeName: "--worker", rkev1.HeaderRoleWorker: ""} {
		answer := env.register(t, cluster, "two-"+headers, map[string]string{headers: "true"})
		if got := answer.Annotations[rkev1.MachineRequestErrorAnnotation]; (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("a machine with header %s only is answered %q", headers, got)
		}
	}
}

// TestMachineRequestInterrupted: a machine whose registration ended half way, since the hub was killed, gets what is missing.
func TestMachineRequestInterrupted(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)
	cluster := env.newReadyCluster(t, namespace, "reg")
	name := rkev1.MachineRequestName("machine-half")
	env.create(t, &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
	}})
	if answer := env.register(t, cluster, "machine-half", allRoles); answer.Labels[rkev1.MachineNameLabel] != name {
		t.Fatalf("the answer is %v, %v", answer.Labels, answer.Annotations)
	}
	env.get(t, namespace, name, &clusterv1.Machine{})
}

// checkNoRights checks that a machine's credential has no rights at the API server, not even to the machine's own plan.
func (e *hubEnv) checkNoRights(t *testing.T, namespace, name string) {
	t.Helper()
	token := &corev1.Secret{}
	until(t, "the machine's token", func() error {
		e.get(t, namespace, rkev1.PlanTokenSecretName(name), token)
		if len(token.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errors.New("the Secret has none")
		}
		return nil
	})
	config := rest.AnonymousClientConfig(e.Config)
	config.BearerToken = string(token.Data[corev1.ServiceAccountTokenKey])
	until(t, "the API server to know the token", func() error {
		_, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	})
	machine, err := client.New(config, client.Options{Scheme: e.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	plan := &corev1.Secret{}
	e.get(t, namespace, rkev1.PlanSecretName(name), plan)
	for what, err := range map[string]error{
		"read its plan Secret":   machine.Get(t.Context(), client.ObjectKeyFromObject(plan), &corev1.Secret{}),
		"write its plan Secret":  machine.Update(t.Context(), plan.DeepCopy()),
		"delete its plan Secret": machine.Delete(t.Context(), plan.DeepCopy()),
		"read another Secret": machine.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: rkev1.BootstrapSecretName(name)},
			&corev1.Secret{}),
		"list Secrets":     machine.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace)),
		"read its Machine": machine.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &clusterv1.Machine{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("the machine can %s: %v", what, err)
		}
	}
}

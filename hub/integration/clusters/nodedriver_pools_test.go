package clusters

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/nodedriver"
)

const cloudToken, rotatedToken = "planted-cloud-token-1", "planted-cloud-token-2"

// driverCluster is a Cluster whose pools are made from machine configurations of the driver lab that have their names.
func driverCluster(namespace string) *provisioningv1.Cluster {
	cluster := newPooled(namespace, "driven")
	cluster.Spec.RKEConfig.InfrastructureRef = nil
	cluster.Spec.CloudCredentialSecretName = "cattle-global-data:cc-lab"
	for i := range cluster.Spec.RKEConfig.MachinePools {
		p := &cluster.Spec.RKEConfig.MachinePools[i]
		p.Quantity, p.MachineConfigRef = ptr.To[int32](1), &provisioningv1.ObjectReference{Kind: "LabConfig", Name: p.Name}
	}
	return cluster
}

func list(t *testing.T, kind, namespace string) []unstructured.Unstructured {
	t.Helper()
	all := &unstructured.UnstructuredList{}
	all.SetAPIVersion("rke-machine.cattle.io/v1")
	all.SetKind(kind + "List")
	if err := env.Client.List(t.Context(), all, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// waitInstances waits until the cloud has a number of instances for which ok is true, and no others.
func waitInstances(t *testing.T, cloud *nodedriver.Cloud, namespace, what string, want int, ok func(nodedriver.Instance) bool) {
	t.Helper()
	testenv.Until(t, fmt.Sprintf("%d instances: %s", want, what), func() error {
		all := cloud.Instances()
		for _, i := range all {
			if !ok(i) {
				return fmt.Errorf("instance %s: %+v", i.Name, i)
			}
		}
		if len(all) != want {
			var states []string
			for _, m := range list(t, "LabMachine", namespace) {
				states = append(states, fmt.Sprint(m.GetName(), m.Object["status"]))
			}
			return fmt.Errorf("%d instances; machines %v", len(all), states)
		}
		return nil
	})
}

// bootstrapped reports whether the bootstrap script has run, and nothing was done twice.
func bootstrapped(i nodedriver.Instance) bool {
	return len(i.Scripts) == 2 && strings.Contains(i.Scripts[0], "CATTLE_TOKEN=") && strings.Contains(i.Scripts[1], "sh /tmp/")
}

// testDriverPools has pools of machines of the driver lab made, replaced, scaled and deleted.
func testDriverPools(t *testing.T) {
	cloud, err := nodedriver.NewCloud(cloudToken)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cloud.Close() })
	global := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cattle-global-data"}}
	if err := env.Client.Create(t.Context(), global); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	credential := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: global.Name, Name: "cc-lab"},
		Data: map[string][]byte{"labcredentialConfig-token": []byte(cloudToken)}}
	namespace := env.Namespace(t)
	newConfig := func(name string) *unstructured.Unstructured {
		return driverObject("rke-machine-config.cattle.io", "LabConfig", namespace, name, map[string]any{"url": cloud.URL, "size": "2"})
	}
	config := newConfig("workers")
	env.Create(t, credential, newConfig("servers"), config)
	refuseUnauthorized(t, namespace)

	cluster := driverCluster(namespace)
	env.Create(t, cluster)
	waitInstances(t, cloud, namespace, "bootstrapped over SSH", 2, bootstrapped)
	testenv.Until(t, "the machines to be created", func() error {
		for _, m := range list(t, "LabMachine", namespace) {
			text := fmt.Sprint(m.Object["status"])
			if !strings.Contains(text, "WaitingForControlPlane") || !strings.Contains(text, "address:127.0.0.1") {
				return fmt.Errorf("%s: %s", m.GetName(), text)
			}
		}
		return nil
	})
	// The server gets its plan without a Node, which it could not have before.
	testenv.Until(t, "the server to be given its plan", func() error {
		var machines clusterv1.MachineList
		if err := env.Client.List(t.Context(), &machines, client.InNamespace(namespace)); err != nil {
			return err
		}
		var reasons []string
		for i := range machines.Items {
			reasons = append(reasons, conditions.GetReason(&machines.Items[i], rkev1.ReconciledCondition))
		}
		if !slices.Contains(reasons, rollout.ReasonWaitingForAgent) {
			return fmt.Errorf("the machines are %v", reasons)
		}
		return nil
	})
	leaks(t, namespace)
	refuseChanges(t, namespace)

	// Another credential changes the templates, and replaces no machine.
	made, templates := cloud.Made(), len(list(t, "LabMachineTemplate", namespace))
	second := credential.DeepCopy()
	second.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "own"}
	env.Create(t, second)
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.CloudCredentialSecretName = "own" })
	testenv.Until(t, "the templates to have the other credential", func() error {
		for _, template := range list(t, "LabMachineTemplate", namespace) {
			got, _, err := unstructured.NestedString(template.Object, "spec", "template", "spec", "common", "cloudCredentialSecretName")
			if err != nil {
				return err
			}
			if got != "own" {
				return fmt.Errorf("%s has %q", template.GetName(), got)
			}
		}
		return nil
	})
	if now := len(list(t, "LabMachineTemplate", namespace)); now != templates || cloud.Made() != made {
		t.Errorf("%d templates became %d, and %d instances were made", templates, now, cloud.Made()-made)
	}

	// A rotated credential is used at once, for removals too.
	cloud.SetToken(rotatedToken)
	testenv.Change(t, env, credential, func(s *corev1.Secret) { s.Data["labcredentialConfig-token"] = []byte(rotatedToken) })
	testenv.Change(t, env, second, func(s *corev1.Secret) { s.Data["labcredentialConfig-token"] = []byte(rotatedToken) })
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[1].Quantity = ptr.To[int32](0) })
	waitInstances(t, cloud, namespace, "no workers", 1, bootstrapped)
	testenv.Change(t, env, config, func(c *unstructured.Unstructured) { c.Object["size"] = "4" })
	testenv.Until(t, "a template of the new size", func() error {
		for _, template := range list(t, "LabMachineTemplate", namespace) {
			if size, _, err := unstructured.NestedString(template.Object, "spec", "template", "spec", "size"); err == nil && size == "4" {
				return nil
			}
		}
		return fmt.Errorf("there is none")
	})
	leaks(t, namespace)

	if err := env.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	env.Gone(t, cluster)
	waitInstances(t, cloud, namespace, "all deleted", 0, bootstrapped)
}

// refuseUnauthorized: who may not read a credential cannot have machines made with it.
func refuseUnauthorized(t *testing.T, namespace string) {
	t.Helper()
	tenant := env.Tenant(t, namespace, testenv.AllOf("provisioning.cattle.io"), testenv.AllOf("rke-machine.cattle.io"),
		testenv.AllOf("rke-machine-config.cattle.io"))
	common := map[string]any{"cloudCredentialSecretName": "cattle-global-data:cc-lab"}
	pooled := driverCluster(namespace)
	pooled.Spec.CloudCredentialSecretName = ""
	pooled.Spec.RKEConfig.MachinePools[1].CloudCredentialSecretName = "cattle-global-data:cc-lab"
	for name, o := range map[string]client.Object{
		"Cluster": driverCluster(namespace), "pool": pooled,
		"machine": driverObject("rke-machine.cattle.io", "LabMachine", namespace, "theirs",
			map[string]any{"spec": map[string]any{"common": common}}),
		"template": driverObject("rke-machine.cattle.io", "LabMachineTemplate", namespace, "theirs",
			map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"common": common}}}}),
	} {
		err := tenant.Create(t.Context(), o, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "names the Secret cc-lab in the namespace cattle-global-data, which you may not read") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// refuseChanges: what a machine was made from, or will be, is changed in its configuration and nowhere else.
func refuseChanges(t *testing.T, namespace string) {
	t.Helper()
	for kind, path := range map[string][]string{"LabMachine": {"spec", "size"}, "LabMachineTemplate": {"spec", "template", "spec", "size"}} {
		before := list(t, kind, namespace)[0]
		parent := path[:len(path)-1]
		for what, change := range map[string]func(map[string]any){
			"changed": func(o map[string]any) { _ = unstructured.SetNestedField(o, "8", path...) },
			"removed": func(o map[string]any) { unstructured.RemoveNestedField(o, append(slices.Clone(parent), "url")...) },
			"added": func(o map[string]any) {
				_ = unstructured.SetNestedStringSlice(o, []string{"a"}, append(slices.Clone(parent), "tags")...)
			},
		} {
			changed := before.DeepCopy()
			change(changed.Object)
			err := env.Client.Patch(t.Context(), changed, client.MergeFrom(&before), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "cannot be changed; change the machine configuration of") {
				t.Errorf("%s, a field %s: %v", kind, what, err)
			}
		}
	}
}

// leaks looks for the tokens of the cloud where users and operators read.
func leaks(t *testing.T, namespace string) {
	t.Helper()
	log, err := os.ReadFile(env.Log)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"the hub's log": string(log)}
	for _, kind := range []string{"LabMachine", "LabMachineTemplate"} {
		raw, err := json.Marshal(list(t, kind, namespace))
		if err != nil {
			t.Fatal(err)
		}
		texts[kind] = string(raw)
	}
	var events corev1.EventList
	if err := env.Client.List(t.Context(), &events, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	texts["Events"] = fmt.Sprint(events.Items)
	var secrets corev1.SecretList
	if err := env.Client.List(t.Context(), &secrets, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		texts["the log in Secret "+s.Name] = string(s.Data["log"]) + string(s.Data["progress"])
	}
	for where, text := range texts {
		for _, token := range []string{cloudToken, rotatedToken} {
			if strings.Contains(text, token) {
				t.Errorf("%s holds a cloud token", where)
			}
		}
	}
}

package integration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
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
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// agentHelp ends the messages about an agent that has not started.
const agentHelp = "; if this lasts, run on the machine: systemctl status rancher-system-agent, then system-agent doctor"

const configPath = "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"

// content returns a file of a plan.
func content(t *testing.T, plan plans.Plan, path string) string {
	t.Helper()
	i := slices.IndexFunc(plan.Files, func(f plans.File) bool { return f.Path == path })
	if i < 0 {
		return ""
	}
	raw, err := base64.StdEncoding.DecodeString(plan.Files[i].Content)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestProvisionOneMachine provisions a Cluster of one machine with all roles up to the missing Node, with a fake agent. At each step the
// conditions name what is waited for.
func TestProvisionOneMachine(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "one", nil)
	controlPlane := r.ControlPlane()
	r.AwaitCondition(controlPlane, "Ready", metav1.ConditionUnknown, "WaitingForMachines",
		"Waiting for machines to be registered: none has the role etcd, control plane or worker")

	a := r.Register("a", "127.0.0.2", "etcd", "control-plane", "worker")
	plan, _ := a.AwaitPlan("")
	machine := &clusterv1.Machine{}
	r.Read(a.Name, machine)
	var config map[string]any
	if err := json.Unmarshal([]byte(content(t, plan, configPath)), &config); err != nil {
		t.Fatal(err)
	}
	if config["cluster-init"] != true || config["server"] != nil ||
		!slices.Contains(config["node-label"].([]any), any("rke.cattle.io/machine="+string(machine.UID))) {
		t.Errorf("the configuration is %v", config)
	}
	secret := a.Secret()
	if secret.Labels[rkev1.InitNodeLabel] != "true" || secret.Annotations[rkev1.PlanLastUpdatedAnnotation] == "" {
		t.Errorf("the plan Secret has %v and %v", secret.Labels, secret.Annotations)
	}
	waits := func(reason, message string) {
		t.Helper()
		r.AwaitCondition(machine, "Reconciled", metav1.ConditionUnknown, reason, message)
		r.AwaitCondition(controlPlane, "Ready", metav1.ConditionUnknown, reason, "Configuring first etcd node "+a.Name+": "+message)
	}
	waits("WaitingForAgent", "Waiting for the agent to check in and apply the first plan"+agentHelp)
	a.Take()
	waits("ApplyingPlan", "Waiting for the agent to apply the plan")
	a.Succeed("kubelet")
	waits("WaitingForProbes", "Waiting for probes: kubelet")
	a.Succeed()
	r.AwaitCondition(controlPlane, "Stable", metav1.ConditionTrue, "Stable", "")
	r.AwaitCondition(controlPlane, "KubeconfigReady", metav1.ConditionTrue, "KubeconfigReady", "")
	// No kubelet runs in this test, so it ends here.
	r.AwaitCondition(controlPlane, "Ready", metav1.ConditionUnknown, "WaitingForNodes",
		"Waiting for the Node of "+a.Name+" to appear in the cluster")
	r.AwaitCondition(controlPlane, "Available", metav1.ConditionTrue, "Available", "")
	r.AwaitCondition(controlPlane, "RollingOut", metav1.ConditionFalse, "NotRollingOut", "")
	r.AwaitCondition(machine, "UpToDate", metav1.ConditionTrue, "UpToDate", "")
	r.AwaitCondition(machine, "PlanApplied", metav1.ConditionTrue, "Applied", "")
	r.Wait("the status to count the machine", func() error {
		r.Read(controlPlane.Name, controlPlane)
		if s := controlPlane.Status; !ptr.Deref(s.Initialization.ControlPlaneInitialized, false) || ptr.Deref(s.UpToDateReplicas, 0) != 1 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	r.Wait("the annotations of the plan Secret", func() error {
		secret = a.Secret()
		if string(secret.Data[plans.KeyAppliedPlan]) != string(secret.Data[plans.KeyPlan]) ||
			secret.Annotations[rkev1.PlanProbesPassedAnnotation] == "" ||
			secret.Annotations[rkev1.JoinURLAnnotation] != "https://127.0.0.2:6443" {
			return fmt.Errorf("it has %v", secret.Annotations)
		}
		return nil
	})
	capi := &clusterv1.Cluster{}
	r.Wait("Cluster API to see the control plane", func() error {
		r.Read(r.Cluster.Name, capi)
		if !ptr.Deref(capi.Status.Initialization.ControlPlaneInitialized, false) {
			return fmt.Errorf("it is %+v", capi.Status.Initialization)
		}
		return nil
	})
	checkKubeconfig(r, plan)
	checkNoWrites(r, a)
}

// checkKubeconfig checks the server, the CA and the client certificate of the kubeconfig Secret against the plan.
func checkKubeconfig(r *testenv.FakeCluster, plan plans.Plan) {
	t := r.T
	t.Helper()
	kubeconfig := &corev1.Secret{}
	r.Read(r.Cluster.Name+"-kubeconfig", kubeconfig)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig.Data["value"])
	if err != nil {
		t.Fatal(err)
	}
	tls := "/var/lib/rancher/k3s/server/tls/"
	if config.Host != "https://127.0.0.2:6443" || string(config.CAData) != content(t, plan, tls+"server-ca.crt") {
		t.Errorf("the kubeconfig leads to %s and trusts\n%s", config.Host, config.CAData)
	}
	authority, err := pki.Parse([]byte(content(t, plan, tls+"client-ca.crt")), []byte(content(t, plan, tls+"client-ca.key")))
	if err != nil {
		t.Fatal(err)
	}
	user, err := pki.Parse(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	if err := user.Cert.CheckSignatureFrom(authority.Cert); err != nil ||
		!slices.Equal(user.Cert.Subject.Organization, []string{"system:masters"}) {
		t.Errorf("the client certificate is of %v: %v", user.Cert.Subject, err)
	}
	if kubeconfig.Type != clusterv1.ClusterSecretType || kubeconfig.Labels[clusterv1.ClusterNameLabel] != r.Cluster.Name {
		t.Errorf("the Secret has type %s and labels %v", kubeconfig.Type, kubeconfig.Labels)
	}
}

// checkNoWrites checks that reconciles of a converged cluster write nothing, once the controllers have written what they owed.
func checkNoWrites(r *testenv.FakeCluster, m *testenv.FakeMachine) {
	t := r.T
	t.Helper()
	versions := func() map[string]string {
		out := map[string]string{}
		for name, object := range map[string]client.Object{
			rkev1.PlanSecretName(m.Name): &corev1.Secret{}, m.Name: &rkev1.RKEBootstrap{}, r.Cluster.Name + "-kubeconfig": &corev1.Secret{},
			r.Cluster.Name + "-ca": &corev1.Secret{}, r.Cluster.Name + "-rke-state": &corev1.Secret{},
		} {
			r.Read(name, object)
			out[name] = object.GetResourceVersion()
		}
		return out
	}
	count := 0
	r.Wait("reconciles to write nothing", func() error {
		before := versions()
		for range 3 {
			count++
			reconcileOnce(r, rkev1.Concurrency(fmt.Sprint(count)))
		}
		if diff := cmp.Diff(before, versions()); diff != "" {
			return fmt.Errorf("reconciles without a change have written:\n%s", diff)
		}
		return nil
	})
}

// reconcileOnce has the control plane reconciled, by a change that concerns no machine, and waits until it was.
func reconcileOnce(r *testenv.FakeCluster, concurrency rkev1.Concurrency) {
	t := r.T
	t.Helper()
	c := r.ControlPlane()
	testenv.Change(t, env, c, func(c *rkev1.RKEControlPlane) { c.Spec.UpgradeStrategy.WorkerConcurrency = concurrency })
	changed := c.Generation
	r.Wait("the control plane to be reconciled", func() error {
		r.Read(c.Name, c)
		if c.Status.ObservedGeneration < changed {
			return fmt.Errorf("generation %d was observed, not %d", c.Status.ObservedGeneration, changed)
		}
		return nil
	})
}

// TestProvisionWorker: a worker that registers later joins the server, and its plan has no keys of the cluster's authorities.
func TestProvisionWorker(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "join", nil)
	a := r.Register("a", "127.0.0.2", "etcd", "control-plane", "worker")
	w := r.Register("w", "127.0.0.3", "worker")
	a.AwaitPlan("")
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: w.Name}}
	r.AwaitCondition(machine, "Reconciled", metav1.ConditionUnknown, "WaitingForTurn",
		"Waiting for the etcd and control plane nodes to be ready first")
	a.Take()
	a.Succeed()
	plan, _ := w.AwaitPlan("")
	var config map[string]any
	if err := json.Unmarshal([]byte(content(t, plan, configPath)), &config); err != nil {
		t.Fatal(err)
	}
	tokens := &corev1.Secret{}
	r.Read(r.Cluster.Name+"-rke-state", tokens)
	if config["server"] != "https://127.0.0.2:6443" || config["token"] != string(tokens.Data["agentToken"]) {
		t.Errorf("the worker's configuration is %v", config)
	}
	for _, f := range plan.Files {
		if strings.Contains(f.Path, "/server/tls/") {
			t.Errorf("the worker is given %s", f.Path)
		}
	}
	w.Take()
	w.Succeed()
	r.AwaitCondition(r.ControlPlane(), "Stable", metav1.ConditionTrue, "Stable", "")
	r.Wait("the worker to have joined the server", func() error {
		if got := w.Secret().Annotations[rkev1.JoinedToAnnotation]; got != "https://127.0.0.2:6443" {
			return fmt.Errorf("joined-to is %q", got)
		}
		return nil
	})
}

// TestProvisionFailedPlan: a failed plan is reported and retried, and a corrected configuration replaces it.
func TestProvisionFailedPlan(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "fail", map[string]any{"selinux": true})
	a := r.Register("a", "127.0.0.2", "etcd", "control-plane", "worker")
	_, first := a.AwaitPlan("")
	a.Take()
	begin := time.Now()
	machine := &clusterv1.Machine{}
	failed := regexp.MustCompile(`^Attempt \d+ of 10 to apply the plan failed; retrying at .*; for details run on the machine: ` +
		`journalctl -u rancher-system-agent.service -u k3s.service$`)
	a.FailUntil("the failure in the conditions of the Machine", func() error {
		r.Read(a.Name, machine)
		for _, c := range machine.Status.Conditions {
			if c.Type == "PlanApplied" && c.Status == metav1.ConditionFalse && failed.MatchString(c.Message) {
				return nil
			}
		}
		return fmt.Errorf("the Machine has %+v", machine.Status.Conditions)
	})
	controlPlane := r.ControlPlane()
	failed = regexp.MustCompile(`Attempt \d+ of 10`)
	a.FailUntil("the failure in the conditions of the RKEControlPlane", func() error {
		r.Read(controlPlane.Name, controlPlane)
		for _, c := range controlPlane.Status.Conditions {
			if c.Type == "Ready" && c.Status == metav1.ConditionFalse && c.Reason == "PlanFailed" && failed.MatchString(c.Message) {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", controlPlane.Status.Conditions)
	})
	a.AwaitPlan("")
	if waited := time.Since(begin); waited < 5*time.Second {
		t.Errorf("the next attempt started after %s", waited)
	}
	a.Take()
	a.Fail()
	cluster := r.Cluster
	r.Read(cluster.Name, cluster)
	before := cluster.DeepCopy()
	cluster.Spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{"selinux": false}
	if err := env.Client.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if plan, _ := a.AwaitPlan(first); !strings.Contains(content(t, plan, configPath), `"selinux": false`) {
		t.Errorf("the new plan has %s", content(t, plan, configPath))
	}
	a.Take()
	a.Succeed()
	r.AwaitCondition(controlPlane, "Stable", metav1.ConditionTrue, "Stable", "")
}

// TestProvisionInvalidArguments: unknown arguments are left out and reported; with an invalid value no plan is delivered.
func TestProvisionInvalidArguments(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "bad", map[string]any{"clutser-cidr": "10.0.0.0/8", "selinux": "perhaps"})
	a := r.Register("a", "127.0.0.2", "etcd", "control-plane", "worker")
	const wrong = "spec.rkeConfig.machineGlobalConfig.selinux: is a text; it takes true or false"
	const unknown = "spec.rkeConfig.machineGlobalConfig.clutser-cidr: is no argument of k3s v1.36.3+k3s1 and was left out"
	controlPlane := r.ControlPlane()
	r.AwaitCondition(controlPlane, "Ready", metav1.ConditionFalse, "PlanInvalid",
		"Configuring first etcd node "+a.Name+": Rendering the plan failed: "+wrong)
	r.AwaitCondition(controlPlane, "ConfigurationAccepted", metav1.ConditionFalse, "PlanInvalid", unknown+"; "+wrong)
	if len(a.Secret().Data[plans.KeyPlan]) > 0 {
		t.Error("a plan was delivered")
	}
	cluster := r.Cluster
	r.Read(cluster.Name, cluster)
	before := cluster.DeepCopy()
	cluster.Spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{"clutser-cidr": "10.0.0.0/8"}
	if err := env.Client.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	a.AwaitPlan("")
	r.AwaitCondition(controlPlane, "ConfigurationAccepted", metav1.ConditionFalse, "ArgumentsLeftOut", unknown)
}

// TestProvisionDeletion: machines and credentials are deleted with their Cluster.
func TestProvisionDeletion(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "gone", nil)
	a := r.Register("a", "127.0.0.2", "etcd", "control-plane", "worker")
	r.Register("w", "127.0.0.3", "worker")
	a.AwaitPlan("")
	a.Take()
	a.Succeed()
	r.AwaitCondition(r.ControlPlane(), "Bootstrapped", metav1.ConditionTrue, "Bootstrapped", "")
	env.Delete(t, r.Cluster)
	env.Gone(t, r.Cluster)
	r.Wait("the rest to be gone", func() error {
		var secrets corev1.SecretList
		var machines clusterv1.MachineList
		for _, list := range []client.ObjectList{&secrets, &machines} {
			if err := env.Client.List(t.Context(), list, client.InNamespace(r.Cluster.Namespace)); err != nil {
				return err
			}
		}
		if len(secrets.Items)+len(machines.Items) > 0 {
			var names []string
			for _, s := range secrets.Items {
				names = append(names, s.Name)
			}
			return fmt.Errorf("%d Machines are left and the Secrets %v", len(machines.Items), names)
		}
		return nil
	})
}

// TestProvisionTokensLost: lost tokens are not generated again once machines have joined with them.
func TestProvisionTokensLost(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "lost", nil)
	a := r.Register("a", "127.0.0.2", "etcd", "control-plane", "worker")
	a.AwaitPlan("")
	tokens := &corev1.Secret{}
	r.Read(r.Cluster.Name+"-rke-state", tokens)
	if err := env.Client.Delete(t.Context(), tokens); err != nil {
		t.Fatal(err)
	}
	r.AwaitCondition(r.ControlPlane(), "Ready", metav1.ConditionFalse, "TokensLost",
		"Secret lost-rke-state with the cluster's tokens is missing, and machines have joined with them. "+
			"Restore it from a backup; on a server the tokens are in config.yaml.d/50-rancher.yaml")
	// As `kubectl create secret generic` does it: without labels, and of another type.
	restored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tokens.Namespace, Name: tokens.Name}, Data: tokens.Data}
	if err := env.Client.Create(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	r.AwaitCondition(r.ControlPlane(), "Ready", metav1.ConditionUnknown, "WaitingForAgent",
		"Configuring first etcd node "+a.Name+": Waiting for the agent to check in and apply the first plan"+agentHelp)
}

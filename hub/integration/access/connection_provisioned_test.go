package access

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// TestAgentManifest: the first plan of a control-plane machine has the agent's manifest, whose token the hub accepts; the cluster is
// connected once the agent is.
func TestAgentManifest(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "made", nil)
	server := r.Register("server", "10.0.0.1", "etcd", "control-plane", "worker")
	plan, _ := server.AwaitPlan("")
	token := tokenOfPlan(t, plan)
	management := r.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation]

	agent := env.ConnectAgent(t, env.RegisterAgent(t, token, "agent-of-plans-0123456789"), nil)
	testenv.Condition(t, env, r.Cluster, "Connected", metav1.ConditionTrue, "Connected")
	testenv.Condition(t, env, r.Cluster, "AgentDeployed", metav1.ConditionTrue, "Deployed")
	awaitAgentConnected(r, true)
	agent.Disconnect()
	testenv.Condition(t, env, r.Cluster, "Connected", metav1.ConditionFalse, "Disconnected")
	awaitAgentConnected(r, false)

	checkNotStored(t, token, management)
}

func awaitAgentConnected(r *testenv.FakeCluster, want bool) {
	r.T.Helper()
	controlPlane := r.ControlPlane()
	r.Wait(fmt.Sprintf("status.agentConnected to be %t", want), func() error {
		r.Read(controlPlane.Name, controlPlane)
		if controlPlane.Status.AgentConnected != want {
			return fmt.Errorf("it is %t", !want)
		}
		return nil
	})
}

// tokenOfPlan takes the registration token out of the manifest in a plan.
func tokenOfPlan(t *testing.T, plan plans.Plan) string {
	t.Helper()
	i := slices.IndexFunc(plan.Files, func(f plans.File) bool {
		return strings.HasSuffix(f.Path, "/server/manifests/rancher/cluster-agent.yaml")
	})
	if i < 0 {
		t.Fatal("the plan holds no cluster-agent")
	}
	if f := plan.Files[i]; !f.Minor || !f.Dynamic {
		t.Errorf("the manifest is %+v", f)
	}
	manifest, err := base64.StdEncoding.DecodeString(plan.Files[i].Content)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(manifest), "---\n") {
		var secret corev1.Secret
		if err := yaml.Unmarshal([]byte(document), &secret); err != nil {
			t.Fatal(err)
		}
		if secret.Kind == "Secret" {
			return string(secret.Data["token"])
		}
	}
	t.Fatal("the manifest holds no Secret")
	return ""
}

// checkNotStored checks that the token is neither in the hub's log nor in the Secrets of registration tokens.
func checkNotStored(t *testing.T, token, management string) {
	t.Helper()
	var secrets corev1.SecretList
	if err := env.Client.List(t.Context(), &secrets, client.InNamespace(management)); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, secret := range secrets.Items {
		found = found || secret.Name == managementv3.TokenSecretPrefix+managementv3.AgentTokenName
		for key, value := range secret.Data {
			if bytes.Contains(value, []byte(token)) {
				t.Errorf("the token is in %s of Secret %s", key, secret.Name)
			}
		}
	}
	if !found {
		t.Error("there is no Secret of the agent's registration token")
	}
	log, err := os.ReadFile(env.Log)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log, []byte(token)) {
		t.Error("the token is in the hub's log")
	}
}

// TestPlainCluster: a cluster of plain Cluster API objects can be connected, too, and its objects are deleted with it.
func TestPlainCluster(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	ref := func(kind string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: kind, Name: "plain"}
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "plain"}
	cluster := &clusterv1.Cluster{ObjectMeta: meta,
		Spec: clusterv1.ClusterSpec{InfrastructureRef: ref("RKECluster"), ControlPlaneRef: ref("RKEControlPlane")}}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: meta, Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1"}}
	env.Create(t, cluster, &rkev1.RKECluster{ObjectMeta: meta}, controlPlane)

	management := &managementv3.Cluster{}
	testenv.Until(t, "the management Cluster", func() error {
		env.Get(t, namespace, "plain", controlPlane)
		management.Name = controlPlane.ManagementName()
		if management.Name == "" {
			return fmt.Errorf("the RKEControlPlane has the annotations %v", controlPlane.Annotations)
		}
		return env.Client.Get(t.Context(), client.ObjectKeyFromObject(management), management)
	})
	testenv.Condition(t, env, management, "Connected", metav1.ConditionFalse, "WaitingForAgent")
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: management.Name, Name: managementv3.AgentTokenName}}
	testenv.Until(t, "the agent's registration token",
		func() error { return env.Client.Get(t.Context(), client.ObjectKeyFromObject(crt), crt) })
	testenv.Condition(t, env, crt, "Ready", metav1.ConditionTrue, "")

	env.Delete(t, cluster)
	env.Gone(t, cluster)
	env.Gone(t, management)
	env.Gone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: management.Name}})
}

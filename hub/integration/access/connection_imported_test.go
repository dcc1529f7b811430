package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestImport imports an existing cluster, from its Cluster to its deletion.
func TestImport(t *testing.T) {
	t.Parallel()
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "elsewhere"}}
	env.Create(t, cluster)
	message := testenv.Condition(t, env, cluster, "Connected", metav1.ConditionFalse, "WaitingForAgent")
	if want := fmt.Sprintf("hub import-command %s/elsewhere", cluster.Namespace); !strings.Contains(message, want) {
		t.Errorf("Connected says %q, want %q in it", message, want)
	}
	testenv.Condition(t, env, cluster, "Ready", metav1.ConditionFalse, "WaitingForAgent")
	testenv.Condition(t, env, cluster, "AgentDeployed", metav1.ConditionFalse, "WaitingForAgent")
	management := &managementv3.Cluster{}
	testenv.Until(t, "the name of the management Cluster", func() error {
		env.Get(t, cluster.Namespace, cluster.Name, cluster)
		if cluster.Status.ClusterName == "" {
			return errors.New("there is none")
		}
		return nil
	})
	env.Get(t, "", cluster.Status.ClusterName, management)

	token := importToken(t, management.Name)
	checkRefusals(t, token, management.Name)
	code, manifest := fetch(t, "/v3/import/"+token+"_"+management.Name+".yaml")
	if code != http.StatusOK {
		t.Fatalf("the manifest is %d %s", code, manifest)
	}
	applyDownstream(t, manifest)
	checkImpersonation(t)

	own := env.RegisterAgent(t, token, "imported-agent-0123456789")
	agent := env.ConnectAgent(t, own, agentRights(t))
	testenv.Condition(t, env, cluster, "Ready", metav1.ConditionTrue, "")
	testenv.Condition(t, env, cluster, "AgentDeployed", metav1.ConditionTrue, "Deployed")
	checkNoWrites(t, cluster, management)
	if s := management.Status; !cluster.Status.Ready || !cluster.Status.AgentDeployed || s.Version == nil || s.Driver != "imported" {
		t.Errorf("the status is %+v and %+v", cluster.Status, s)
	}

	left := time.Now()
	agent.Disconnect()
	message = testenv.Condition(t, env, cluster, "Connected", metav1.ConditionFalse, "Disconnected")
	if took := time.Since(left); took > 40*time.Second {
		t.Errorf("it took %s until the cluster was called disconnected", took)
	}
	if !strings.Contains(message, "disconnected since 20") || !strings.Contains(message, env.ServerURL) {
		t.Errorf("Connected says %q", message)
	}
	if ready := testenv.Condition(t, env, cluster, "Ready", metav1.ConditionFalse, "Disconnected"); ready != message {
		t.Errorf("Ready says %q", ready)
	}
	testenv.Condition(t, env, cluster, "AgentDeployed", metav1.ConditionTrue, "Deployed")

	agent.Connect(t)
	testenv.Condition(t, env, cluster, "Ready", metav1.ConditionTrue, "")
	env.Delete(t, cluster)
	env.Gone(t, cluster)
	env.Gone(t, management)
	env.Gone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: management.Name}})
	agent.Disconnect()

	log, err := os.ReadFile(env.Log)
	if err != nil {
		t.Fatal(err)
	}
	for what, secret := range map[string]string{"registration token": token, "credential": own} {
		if bytes.Contains(log, []byte(secret)) {
			t.Errorf("the %s is in the hub's log", what)
		}
	}
}

// importToken creates a registration token as hub import-command does.
func importToken(t *testing.T, management string) string {
	t.Helper()
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		t.Fatal(err)
	}
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: "import"}}
	crt.Spec.ClusterName, crt.Spec.Purpose = management, managementv3.AgentsPurpose
	crt.Spec.Made = &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)}
	env.Create(t, crt)
	testenv.Condition(t, env, crt, "Ready", metav1.ConditionTrue, "")
	want := env.ServerURL + "/v3/import/{token}_" + management + ".yaml"
	if s := crt.Status; s.ManifestURL != want || !strings.Contains(s.Command, want) || !strings.Contains(s.VerifiedCommand, want) ||
		s.NodeCommand != "" {
		t.Errorf("the commands are %+v", s)
	}
	// The gateway has a watch of its own.
	testenv.Until(t, "the gateway to know the token", func() error {
		if code, text := fetch(t, "/v3/import/"+token+"_"+management+".yaml"); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	return token
}

func checkRefusals(t *testing.T, token, management string) {
	t.Helper()
	for path, want := range map[string]int{
		"/v3/import/" + token + "_c-m-aaaaaaaa.yaml":        http.StatusUnauthorized,
		"/v3/import/" + token + "x_" + management + ".yaml": http.StatusUnauthorized,
		"/v3/import/" + token + ".yaml":                     http.StatusNotFound,
	} {
		if code, text := fetch(t, path); code != want || strings.Contains(text, token) {
			t.Errorf("%s is %d %s, want %d", path, code, text, want)
		}
	}
}

// applyDownstream applies a manifest as kubectl does. The fake downstream API has no workloads: these are only decoded.
func applyDownstream(t *testing.T, manifest string) {
	t.Helper()
	c, err := client.New(downstream.RestConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	left := map[string]bool{}
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		err = c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl"), client.ForceOwnership)
		if meta.IsNoMatchError(err) {
			left[object.GetKind()] = true
			continue
		}
		if err != nil {
			t.Fatalf("applying %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	if len(left) != 1 || !left["Deployment"] {
		t.Errorf("the downstream API does not know %v", left)
	}
}

// checkImpersonation checks that the agent may impersonate a user with extra fields, as those of EKS, GKE and OpenShift are.
func checkImpersonation(t *testing.T) {
	t.Helper()
	config := agentRights(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: "ann", UID: "7", Groups: []string{"devs"},
		Extra: map[string][]string{"arn": {"arn:aws:iam::1:user/ann"}, "scopes.example.com/x": {"a", "b"}}}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the agent to act for a user with extra fields", func() error {
		who, err := whoAmI(t, clientset)
		if err == nil && (who.Username != "ann" || who.UID != "7" || len(who.Extra["arn"]) != 1 || len(who.Extra["scopes.example.com/x"]) != 2) {
			err = fmt.Errorf("it acts as %+v", who)
		}
		return err
	})
}

// checkNoWrites checks that nothing is written while nothing changes, once the controllers have written what they owed.
func checkNoWrites(t *testing.T, cluster *provisioningv1.Cluster, management *managementv3.Cluster) {
	t.Helper()
	versions := func() string {
		env.Get(t, cluster.Namespace, cluster.Name, cluster)
		env.Get(t, "", management.Name, management)
		return cluster.ResourceVersion + "/" + management.ResourceVersion
	}
	testenv.Until(t, "nothing to be written", func() error {
		before := versions()
		time.Sleep(3 * time.Second)
		if after := versions(); after != before {
			return fmt.Errorf("%s became %s", before, after)
		}
		return nil
	})
}

package access

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestNoTokenLeaks uses tokens of every kind, valid and invalid, and looks for them in the hub's log at debug level and in every object of
// its API. The token of a machine may be only in the Secret in which Kubernetes stores it.
func TestNoTokenLeaks(t *testing.T) {
	t.Parallel()
	cluster, management := newCluster(t)
	token, crt := newToken(t, management, managementv3.AgentsPurpose)
	machines, _ := newToken(t, management, managementv3.MachinesPurpose)
	first := requestCredential(t, token, idOne)
	if first.code != http.StatusOK {
		t.Fatalf("%d %s", first.code, first.text)
	}
	conn := openTunnel(t, "/v3/connect", bearer(first.Credential))
	stock := openTunnel(t, "/v3/connect", legacyHeaders(token))
	planToken := register(t, machines, "leaking-machine")
	openTunnel(t, "/v3/connect", bearer(planToken))
	env.Delete(t, agentObject(t, first))
	_ = awaitClosed(t, conn, tunnelTimeout)
	env.Delete(t, crt)
	_ = awaitClosed(t, stock, tunnelTimeout)
	for _, wrong := range []string{token, first.Credential, token + "x", first.Credential + "x", machines} {
		if got := requestCredential(t, wrong, idTwo); got.code == http.StatusOK || strings.Contains(got.text, wrong) {
			t.Errorf("a wrong token gets %d, or is in the response", got.code)
		}
		openRefused(t, "/v3/connect", bearer(wrong))
		openRefused(t, "/v3/connect", legacyHeaders(wrong))
		get(t, "/v3/connect/agent", machineHeaders(wrong, "leaking-other-machine", machineSecret+"x"))
	}

	planted := map[string]string{
		"registration token": token, "token for machines": machines, "credential": first.Credential, "agent's id": idOne,
		"machine's secret": machineSecret, "legacy agent's token": legacyToken, "plan token": planToken,
	}
	log, err := os.ReadFile(env.Log)
	if err != nil {
		t.Fatal(err)
	}
	objects := everyObject(t)
	for name, value := range planted {
		// Part of a secret is as bad as the whole. An id is no secret of a registration token.
		part := []byte(value[len(value)/2:])
		if bytes.Contains(log, part) {
			t.Errorf("the %s is in the log", name)
		}
		for at, object := range objects {
			if bytes.Contains(object, part) && !(name == "plan token" && strings.HasPrefix(at, "Secret "+cluster.Namespace+"/")) {
				t.Errorf("the %s is in %s", name, at)
			}
		}
	}
}

// everyObject returns all objects of the API by kind and name, with decoded Secrets.
func everyObject(t *testing.T) map[string][]byte {
	t.Helper()
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(env.Config).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	reader := dynamic.NewForConfigOrDie(env.Config)
	out := map[string][]byte{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !strings.Contains(strings.Join(resource.Verbs, ","), "list") {
				continue
			}
			found, err := reader.Resource(gv.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing %s: %v", resource.Name, err)
			}
			for i := range found.Items {
				out[resource.Kind+" "+found.Items[i].GetNamespace()+"/"+found.Items[i].GetName()] = plain(t, &found.Items[i])
			}
		}
	}
	if len(out) < 50 {
		t.Fatalf("there are only %d objects", len(out))
	}
	return out
}

// plain returns an object as JSON, followed by the decoded data of a Secret.
func plain(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	raw, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	if object.GetKind() != "Secret" {
		return raw
	}
	secret := &corev1.Secret{}
	if err := json.Unmarshal(raw, secret); err != nil {
		t.Fatal(err)
	}
	for _, value := range secret.Data {
		raw = append(append(raw, '\n'), value...)
		// Plans hold files in base64.
		for word := range strings.FieldsFuncSeq(string(value), func(r rune) bool { return r == '"' }) {
			if decoded, err := base64.StdEncoding.DecodeString(word); err == nil && len(decoded) > 16 {
				raw = append(append(raw, '\n'), decoded...)
			}
		}
	}
	return raw
}

// TestIdentitiesAreReadOnly: users with all rights to TunnelAgents and Tokens can only delete them.
func TestIdentitiesAreReadOnly(t *testing.T) {
	t.Parallel()
	_, management := newCluster(t)
	token, _ := newToken(t, management, managementv3.AgentsPurpose)
	first := requestCredential(t, token, idOne)
	if first.code != http.StatusOK {
		t.Fatalf("%d %s", first.code, first.text)
	}
	editor := asEditor(t)
	forged := &managementv3.TunnelAgent{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: "agent-forged"}}
	forged.Spec.ClusterName = management
	made := &managementv3.Token{ObjectMeta: metav1.ObjectMeta{Name: "forged-" + management}}
	made.Spec.ClusterName, made.Spec.User.Username, made.Spec.Hash, made.Spec.ExpiresAt = management, "root", strings.Repeat("a",
		64), metav1.Now()
	testenv.Until(t, "the policy to be carried out", func() error {
		if err := editor.Create(t.Context(), forged.DeepCopy()); err == nil ||
			!strings.Contains(err.Error(), "only the hub makes and changes these") {
			return fmt.Errorf("making a TunnelAgent ended with: %w", err)
		}
		return nil
	})
	if err := editor.Create(t.Context(), made); err == nil || !strings.Contains(err.Error(), "only the hub makes and changes these") {
		t.Errorf("a Token was created: %v", err)
	}
	if err := editor.Delete(t.Context(), agentObject(t, first)); err != nil {
		t.Errorf("a TunnelAgent cannot be deleted: %v", err)
	}
}

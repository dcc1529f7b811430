package clusters

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestBootstrapData creates machines of a provider that the hub does not know.
func TestBootstrapData(t *testing.T) {
	t.Parallel()
	c := newCAPICluster(t)
	c.machine("cloud", rkev1.Userdata{InlineUserdata: "#cloud-config\nhostname: one\n"}, "worker")
	data := c.awaitBootstrapData("cloud")
	if string(data.Data["format"]) != "cloud-config" || !strings.HasPrefix(string(data.Data["value"]), "#cloud-config\n") ||
		!strings.Contains(string(data.Data["value"]), "\nhostname: one\n") {
		t.Errorf("the data are %q", data.Data)
	}
	if data.Labels[clusterv1.ClusterNameLabel] != c.name || !metav1.IsControlledBy(data, c.bootstrap("cloud")) {
		t.Errorf("the Secret has labels %v and owners %v", data.Labels, data.OwnerReferences)
	}

	c.machine("flatcar", rkev1.Userdata{Format: rkev1.IgnitionFormat}, "worker")
	if data := c.awaitBootstrapData("flatcar"); string(data.Data["format"]) != "ignition" || !strings.HasPrefix(string(data.Data["value"]),
		"{") {
		t.Errorf("the data are %q", data.Data)
	}
}

// TestBootstrapDataInvalid: invalid user data is refused with a message, and used once it is corrected.
func TestBootstrapDataInvalid(t *testing.T) {
	t.Parallel()
	c := newCAPICluster(t)
	c.machine("broken", rkev1.Userdata{InlineUserdata: "#!/bin/sh\nreboot\n"}, "worker")
	message := testenv.Condition(t, env, c.bootstrap("broken"), rkev1.DataSecretReadyCondition, metav1.ConditionFalse, "InvalidBootstrapData")
	if !strings.HasPrefix(message, "spec.userdata.inlineUserdata: ") || strings.Contains(message, "reboot") {
		t.Errorf("the condition says %q", message)
	}
	testenv.Change(t, env, c.bootstrap("broken"), func(b *rkev1.RKEBootstrap) { b.Spec.Userdata.InlineUserdata = "runcmd: [reboot]" })
	c.awaitBootstrapData("broken")
}

// tokenOf takes the token out of bootstrap data as a machine does.
func tokenOf(t *testing.T, data *corev1.Secret) string {
	t.Helper()
	var document struct {
		WriteFiles []struct{ Content string } `json:"write_files"`
	}
	if err := yaml.Unmarshal(data.Data["value"], &document); err != nil {
		t.Fatal(err)
	}
	packed, err := base64.StdEncoding.DecodeString(document.WriteFiles[0].Content)
	if err != nil {
		t.Fatal(err)
	}
	if token := regexp.MustCompile(`CATTLE_TOKEN='([^']+)'`).FindSubmatch(gunzip(t, packed)); token != nil {
		return string(token[1])
	}
	return ""
}

// register registers at the hub's gateway as the install script does.
func register(t *testing.T, token, id, secret string) (int, string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(env.CACerts)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, env.ServerURL+"/v3/connect/agent", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("X-Cattle-Id", id)
	if secret != "" {
		request.Header.Set("X-Cattle-Machine-Secret", secret)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// TestBootstrapToken: the token in bootstrap data is valid for one machine, does not expire before it registers, and is refused afterwards.
func TestBootstrapToken(t *testing.T) {
	t.Parallel()
	const id, secret = "0123456789abcdef", "the machine's secret, long enough"
	c := newCAPICluster(t)
	c.machine("late", rkev1.Userdata{}, "etcd", "control-plane", "worker")
	data := c.awaitBootstrapData("late")
	token := tokenOf(t, data)
	if token == "" || token != string(data.Data["token"]) {
		t.Fatalf("the script has the token %q, and the Secret %q", token, data.Data["token"])
	}
	expect := func(what string, code int, wantCode int, body, want string) {
		t.Helper()
		if code != wantCode || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", what, code, body)
		}
	}

	testenv.Change(t, env, c.capi(), func(capi *clusterv1.Cluster) { capi.Spec.Paused = ptr.To(true) })
	testenv.Until(t, "the gateway to know that the Cluster is paused", func() error {
		capi := c.capi()
		testenv.Condition(t, env, capi, clusterv1.PausedCondition, metav1.ConditionTrue, "")
		return nil
	})
	code, body := register(t, token, id, secret)
	expect("into a paused Cluster", code, http.StatusServiceUnavailable, body, "to be unpaused")
	testenv.Change(t, env, c.capi(), func(capi *clusterv1.Cluster) { capi.Spec.Paused = ptr.To(false) })
	testenv.Condition(t, env, c.capi(), clusterv1.PausedCondition, metav1.ConditionFalse, "")

	code, body = register(t, token, id, "")
	expect("without a secret", code, http.StatusUnauthorized, body, "must send a secret of its own")
	var first string
	testenv.Until(t, "the machine to register", func() error {
		code, first = register(t, token, id, secret)
		if code != http.StatusOK {
			return &gatewayAnswer{code, first}
		}
		return nil
	})
	code, body = register(t, token, id, secret)
	expect("again", code, http.StatusOK, body, first)
	code, body = register(t, token, "another", "the secret of another machine")
	expect("another machine", code, http.StatusUnauthorized, body, "not that machine's")

	// The agent reports, and the token has served.
	c.provision("late", "192.0.2.1")
	c.runAgents()
	testenv.Until(t, "the token to be refused", func() error {
		if code, body := register(t, token, id, secret); code != http.StatusUnauthorized {
			return &gatewayAnswer{code, body}
		}
		return nil
	})
	// With its id and secret the machine still gets its connection, and the data stay for Cluster API.
	code, body = register(t, "", id, secret)
	expect("by its identity", code, http.StatusOK, body, first)
	if after := c.awaitBootstrapData("late"); after.ResourceVersion != data.ResourceVersion {
		t.Error("the bootstrap data were written again")
	}
	testenv.Condition(t, env, c.bootstrap("late"), rkev1.ReadyCondition, metav1.ConditionTrue, "")

	// What somebody has changed of the identity is as before.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: rkev1.PlanSecretName("late")}}
	testenv.Change(t, env, account, func(account *corev1.ServiceAccount) { account.Labels[rkev1.MachineNameLabel] = "another" })
	testenv.Until(t, "the label of the ServiceAccount to be that of the machine", func() error {
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(account), account)
		if err == nil && account.Labels[rkev1.MachineNameLabel] != "late" {
			err = fmt.Errorf("it is %q", account.Labels[rkev1.MachineNameLabel])
		}
		return err
	})

	// A deleted Secret is created again without a token.
	env.Delete(t, data)
	testenv.Until(t, "the bootstrap data to be created again", func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(data), data); err != nil {
			return err
		}
		return nil
	})
	if tokenOf(t, data) != "" || len(data.Data["token"]) > 0 {
		t.Error("the bootstrap data have a token again")
	}
}

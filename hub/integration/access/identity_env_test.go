package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv"
)

// newCluster creates a Cluster and returns the name of its management Cluster.
func newCluster(t *testing.T) (cluster *provisioningv1.Cluster, management string) {
	t.Helper()
	cluster = &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "one"},
		Spec:       provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: &provisioningv1.RKEConfig{}},
	}
	env.Create(t, cluster)
	testenv.Until(t, "the management Cluster", func() error {
		env.Get(t, cluster.Namespace, cluster.Name, cluster)
		if cluster.Status.ClusterName == "" {
			return errors.New("it has no name")
		}
		return nil
	})
	return cluster, cluster.Status.ClusterName
}

// newToken creates a registration token as a user does, and waits until the gateway has read it.
func newToken(t *testing.T, management string, purpose managementv3.RegistrationPurpose,
	set ...func(*managementv3.ClusterRegistrationToken)) (string, *managementv3.ClusterRegistrationToken) {
	t.Helper()
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		t.Fatal(err)
	}
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: management, GenerateName: "test-"}}
	crt.Spec.ClusterName, crt.Spec.Purpose = management, purpose
	crt.Spec.Made = &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)}
	for _, f := range set {
		f(crt)
	}
	env.Create(t, crt)
	testenv.Condition(t, env, crt, "Ready", metav1.ConditionTrue, "")
	awaitToken(t, token)
	return token, crt
}

// awaitToken waits until the gateway knows a registration token: it has a watch of its own. Tokens for agents are for nothing else.
func awaitToken(t *testing.T, token string) {
	t.Helper()
	testenv.Until(t, "the gateway to know the registration token", func() error {
		code, text := get(t, "/v3/connect/cluster-info", bearer(token))
		if code != http.StatusOK && code != http.StatusForbidden {
			time.Sleep(500 * time.Millisecond) // wrong tokens are limited
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}

// dialerOf returns a dialer with a loopback address that no other test uses, so that limits by address do not affect other tests.
// TestUnauthenticatedLoad uses the address of its agents and users.
func dialerOf(t *testing.T) *net.Dialer {
	t.Helper()
	if strings.HasPrefix(t.Name(), "TestUnauthenticatedLoad") {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.Name()))
	sum := hash.Sum32()
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 64+byte(sum>>16)%128, byte(sum>>8), 1+byte(sum)%254)}}
}

// httpClientOf returns an HTTP client that connects from the test's address.
func httpClientOf(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: tlsConfig(), DialContext: dialerOf(t).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// tlsConfig trusts the hub's authority for the name that certificates have, whatever address is dialed.
func tlsConfig() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error { //nolint:gosec // verified below
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: env.Trust().RootCAs, DNSName: "127.0.0.1"})
		return err
	}}
}

// answer is the response to a request for a credential.
type answer struct {
	Cluster, Agent, Credential string
	ExpiresAt, RenewAfter      time.Time
	// code, text and again are of any answer.
	code  int
	text  string
	again string
}

// requestCredential requests a credential once.
func requestCredential(t *testing.T, token, id string) answer {
	t.Helper()
	body := fmt.Sprintf(`{"agent":%q}`, id)
	if id == "" {
		body = ""
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, env.ServerURL+"/v3/connect/credential", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := httpClientOf(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := answer{code: response.StatusCode, text: string(bytes.TrimSpace(raw)), again: response.Header.Get("Retry-After")}
	if out.code == http.StatusOK {
		if err := json.Unmarshal(raw, &out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// awaitCredential requests a credential until the hub does not ask to retry any more.
func awaitCredential(t *testing.T, token, id string) (out answer) {
	t.Helper()
	testenv.Until(t, "an answer that is not for later", func() error {
		if out = requestCredential(t, token, id); out.code == http.StatusServiceUnavailable {
			return errors.New(out.text)
		}
		return nil
	})
	return out
}

// tunnel opens a websocket as agents do.
func tunnel(t *testing.T, path string, headers map[string]string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	header := http.Header{}
	for name, value := range headers {
		header.Set(name, value)
	}
	dialer := websocket.Dialer{TLSClientConfig: env.Trust(), HandshakeTimeout: time.Minute, NetDialContext: dialerOf(t).DialContext}
	conn, response, err := dialer.DialContext(t.Context(), strings.Replace(env.ServerURL, "https://", "wss://", 1)+path, header)
	if conn != nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, response, err
}

// openRefused opens a websocket that must be refused, and returns code and text.
func openRefused(t *testing.T, path string, headers map[string]string) (code int, text string) {
	t.Helper()
	_, response, err := tunnel(t, path, headers)
	if err == nil {
		t.Fatal("a tunnel was opened")
	}
	if response == nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return response.StatusCode, string(bytes.TrimSpace(raw))
}

// openTunnel opens a websocket. As agents do, it comes again where the hub asks for that.
func openTunnel(t *testing.T, path string, headers map[string]string) (conn *websocket.Conn) {
	t.Helper()
	testenv.Until(t, "a tunnel to be opened", func() (err error) {
		var response *http.Response
		if conn, response, err = tunnel(t, path, headers); err == nil {
			return nil
		}
		if response == nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("%v: %d %s", err, response.StatusCode, raw)
		}
		return fmt.Errorf("%w: %s", err, raw)
	})
	return conn
}

// awaitClosed waits until the hub has closed a tunnel.
func awaitClosed(t *testing.T, conn *websocket.Conn, within time.Duration) error {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(within))
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			return err
		}
	}
}

func agentObject(t *testing.T, a answer) *managementv3.TunnelAgent {
	t.Helper()
	agent := &managementv3.TunnelAgent{}
	env.Get(t, a.Cluster, a.Agent, agent)
	return agent
}

func agentsOf(ctx context.Context, t *testing.T, management string) []managementv3.TunnelAgent {
	t.Helper()
	var list managementv3.TunnelAgentList
	if err := env.Client.List(ctx, &list, client.InNamespace(management)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// tunnelTimeout is how long it may take until a tunnel is closed.
const tunnelTimeout = time.Minute

// asEditor returns a client with all rights to the kinds of the group, and no others.
func asEditor(t *testing.T) client.Client {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "editor-"}, Rules: []rbacv1.PolicyRule{testenv.AllOf(managementv3.GroupVersion.Group)},
	}
	env.Create(t, role)
	env.Create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: role.Name}},
	})
	env.AwaitRights(t, role.Name, "", role.Rules...)
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: role.Name}
	out, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

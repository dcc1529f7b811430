package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/tokens"
	"github.com/drover-dev/drover/hub/usertokens"
)

// cluster is a Cluster whose agent the test plays.
type cluster struct {
	*provisioningv1.Cluster
	// id is the name of the management Cluster.
	id string
	// disconnect ends the agent's tunnel, connect opens it again.
	disconnect, connect func()
}

// newCluster makes a Cluster, and an agent that connects it.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Cluster: &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "one"},
		Spec:       provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: &provisioningv1.RKEConfig{}},
	}}
	env.Create(t, c.Cluster)
	testenv.Until(t, "the management Cluster", func() error {
		env.Get(t, c.Namespace, c.Name, c.Cluster)
		if c.id = c.Status.ClusterName; c.id == "" {
			return errors.New("it has no name")
		}
		return nil
	})
	credential := register(t, c.id)
	api := kubeAPI(t)
	c.connect = func() {
		ctx, cancel := context.WithCancel(context.Background())
		done, connected := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			header := http.Header{"Authorization": {"Bearer " + credential}, "X-Drover-Agent": {"cluster/test"}}
			dialer := &websocket.Dialer{TLSClientConfig: trust(), HandshakeTimeout: 20 * time.Second}
			local := func(ctx context.Context, network, address string) (net.Conn, error) {
				if network != "drover" || address != "kube-api" {
					return nil, fmt.Errorf("nothing is at %s %s", network, address)
				}
				return (&net.Dialer{}).DialContext(ctx, "tcp", api)
			}
			_ = remotedialer.ConnectToProxyWithDialer(ctx, strings.Replace(env.ServerURL, "https://", "wss://", 1)+"/v3/connect", header,
				func(string, string) bool { return true }, dialer, local, func(context.Context, *remotedialer.Session) error {
					close(connected)
					return nil
				})
		}()
		select {
		case <-connected:
		case <-time.After(30 * time.Second):
			t.Error("the agent does not connect")
		}
		c.disconnect = func() {
			cancel()
			<-done
		}
	}
	c.connect()
	t.Cleanup(func() { c.disconnect() })
	return c
}

// register exchanges a registration token for a credential, as an agent does.
func register(t *testing.T, id string) string {
	t.Helper()
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		t.Fatal(err)
	}
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: id, GenerateName: "test-"}}
	crt.Spec.ClusterName, crt.Spec.Purpose = id, managementv3.AgentsPurpose
	crt.Spec.Made = &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)}
	env.Create(t, crt)
	var answer struct{ Credential string }
	testenv.Until(t, "the agent to be registered", func() error {
		return post(t, "/v3/connect/credential", token, map[string]string{"agent": "agent-0123456789abcdef"}, &answer)
	})
	return answer.Credential
}

// kubeAPI is what the agent of a cluster does for the hub: it shows its own credential to the API server, which believes it who the user is.
func kubeAPI(t *testing.T) string {
	t.Helper()
	transport, err := rest.TransportFor(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(env.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Impersonate-User") == "" || r.Header.Get("Authorization") != "" {
			http.Error(w, "the agent takes requests of users without credentials only", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(env.CACerts)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// post sends JSON to the hub and reads what comes back.
func post(t *testing.T, path, token string, body, into any) error {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, env.ServerURL+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: trust()}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", response.Status, answer)
	}
	return json.Unmarshal(answer, into)
}

// userToken asks the hub for a token for a cluster.
func userToken(t *testing.T, c *cluster, token string, request usertokens.Request) usertokens.Answer {
	t.Helper()
	request.Cluster = c.id
	var answer usertokens.Answer
	testenv.Until(t, "a token of the hub's own", func() error { return post(t, usertokens.Path, token, request, &answer) })
	return answer
}

// through is how a cluster is reached by the hub, without a credential yet.
func through(c *cluster) *rest.Config {
	return &rest.Config{
		Host: env.ServerURL + "/k8s/clusters/" + c.id, TLSClientConfig: rest.TLSClientConfig{CAData: env.CACerts}, QPS: -1,
	}
}

func withToken(c *cluster, token string) kubernetes.Interface {
	config := through(c)
	config.BearerToken = token
	return kubernetes.NewForConfigOrDie(config)
}

// asAdmin shows the certificate of the hub's administrator.
func asAdmin(c *cluster, change ...func(*rest.Config)) kubernetes.Interface {
	config := through(c)
	config.CertFile, config.KeyFile = env.Config.CertFile, env.Config.KeyFile
	for _, f := range change {
		f(config)
	}
	return kubernetes.NewForConfigOrDie(config)
}

// robot makes a ServiceAccount of the management cluster, and returns its name there and a token of it.
func robot(t *testing.T, c *cluster, name string) (user, token string) {
	t.Helper()
	env.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}})
	management := kubernetes.NewForConfigOrDie(env.Config)
	review, err := management.CoreV1().ServiceAccounts(c.Namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return "system:serviceaccount:" + c.Namespace + ":" + name, review.Status.Token
}

// letIn gives a user of the management cluster the right to reach a cluster, and returns how to take it back.
func letIn(t *testing.T, c *cluster, user string) *rbacv1.RoleBinding {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: "reach"}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	env.Create(t, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{provisioningv1.GroupVersion.Group}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{c.Name}, Verbs: []string{"get"},
	}}}, binding)
	return binding
}

// whoAmI asks a cluster who it takes the caller for.
func whoAmI(t *testing.T, client kubernetes.Interface) (authenticationv1.UserInfo, error) {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// answers waits until a cluster answers a client with a code, 200 being success, and returns as whom, or the message.
func answers(t *testing.T, client kubernetes.Interface, code int32) (authenticationv1.UserInfo, string) {
	t.Helper()
	var who authenticationv1.UserInfo
	var message string
	testenv.Until(t, fmt.Sprintf("an answer with code %d", code), func() error {
		var err error
		var status apierrors.APIStatus
		who, err = whoAmI(t, client)
		switch {
		case err == nil && code == http.StatusOK:
			return nil
		case errors.As(err, &status) && status.Status().Code == code:
			message = status.Status().Message
			return nil
		case err == nil:
			return fmt.Errorf("it is %+v", who)
		}
		return err
	})
	return who, message
}

package agentsession

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/response"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// authority is a certificate as agents of other hubs send it: PEM in base64.
func authority(t *testing.T) string {
	t.Helper()
	pair, err := pki.Issue(pki.Request{CommonName: "x", IsCA: true, Lifetime: time.Hour}, nil, time.Now())
	must(t, err)
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Cert.Raw}))
}

func TestTunnelParams(t *testing.T) {
	ca := authority(t)
	encode := func(json string) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(json, "CA", ca)))
	}
	for _, tt := range []struct{ name, header, err string }{
		{name: "good", header: encode(`{"cluster":{"address":"10.43.0.1:443","token":"t","caCert":"CA"},"more":1}`)},
		{name: "missing", err: "JSON in base64"},
		{name: "no base64", header: "{}", err: "JSON in base64"},
		{name: "no JSON", header: encode("x"), err: "JSON in base64"},
		{name: "a node", header: encode(`{"node":{"hostname":"n"}}`), err: "cluster is missing"},
		{name: "no port", header: encode(`{"cluster":{"address":"10.43.0.1","token":"t","caCert":"CA"}}`),
			err: "cluster.address must be host:port"},
		{name: "no token", header: encode(`{"cluster":{"address":"10.43.0.1:443","caCert":"CA"}}`), err: "cluster.token is missing"},
		{name: "no authority", header: encode(`{"cluster":{"address":"10.43.0.1:443","token":"t"}}`), err: "cluster.caCert must be certificates"},
		{name: "another authority", header: encode(`{"cluster":{"address":"10.43.0.1:443","token":"t","caCert":"eHh4"}}`),
			err: "cluster.caCert must be certificates"},
		{name: "huge", header: strings.Repeat("A", maxTunnelParams+4), err: "too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseTunnelParams(tt.header)
			var refused *response.Error
			switch {
			case tt.err == "" && (err != nil || got.Address != "10.43.0.1:443" || got.Token != "t" || len(got.CACert) == 0):
				t.Errorf("%+v, %v", got, err)
			case tt.err != "" && (!errors.As(err, &refused) || refused.Code != http.StatusBadRequest ||
				!strings.Contains(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), tunnelParamsHeader)):
				t.Errorf("got %v, want 400 with %q", err, tt.err)
			}
		})
	}
}

// served is the last agent that was given a session.
type served struct {
	Tunnels
	agent tunnel.Agent
}

func (s *served) Serve(_ http.ResponseWriter, _ *http.Request, agent tunnel.Agent) { s.agent = agent }

// TestSessionCluster: the log of a session has the Cluster as users name it.
func TestSessionCluster(t *testing.T) {
	demo := client.ObjectKey{Namespace: "fleet", Name: "demo"}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, managementv3.AddToScheme)).WithObjects(
		&managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-1", Labels: ownership.Labels(demo)}},
		&managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-2"}},
	).Build()
	for key, want := range map[string]string{"c-m-1": "fleet/demo", "c-m-1:machine": "fleet/demo", legacyAPIPrefix + "c-m-1": "fleet/demo",
		"c-m-2": "", "c-m-3": ""} {
		tunnels := &served{}
		a := &Agents{Options{Client: c, Tunnels: tunnels}}
		a.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v3/connect", nil),
			&Caller{agent: tunnel.Agent{Key: key}, valid: func(context.Context) error { return nil }})
		if got := tunnels.agent; got.Key != key || got.Cluster != want {
			t.Errorf("got %+v, want Cluster %q", got, want)
		}
	}
}

func FuzzTunnelParams(f *testing.F) {
	for _, seed := range []string{"", "e30=", "eyJjbHVzdGVyIjp7fX0="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if got, err := parseTunnelParams(header); (got == nil) == (err == nil) {
			t.Errorf("%+v and %v", got, err)
		}
	})
}

func TestReadAgentID(t *testing.T) {
	for _, tt := range []struct{ body, want, err string }{
		{body: `{"agent":"0123456789-abcdef"}`, want: "0123456789-abcdef"},
		{body: ""}, {body: "{}"},
		{body: "x", err: "must be JSON"},
		{body: `{"agent":1}`, err: "must be JSON"},
		{body: `{"agent":"short"}`, err: "agent: it must be 16 to 64"},
		{body: `{"agent":"0123456789/../abcdef"}`, err: "agent: it must be 16 to 64"},
		{body: `{"agent":"` + strings.Repeat("a", 65) + `"}`, err: "agent: it must be 16 to 64"},
	} {
		got, err := readAgentID(strings.NewReader(tt.body))
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %v", tt.body, got, err)
		}
	}
}

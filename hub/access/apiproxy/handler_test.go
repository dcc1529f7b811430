package apiproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// TestRequest checks what the cluster receives of a user's request, and which headers are removed.
func TestRequest(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	r := w.request("POST", "/k8s/clusters/"+connectedCluster+"/api/v1/namespaces/a/configmaps/x%2Fy?dryRun=All&fieldManager=%C3%A4", "is-jane",
		"Cookie", "session=secret", "X-Remote-User", "root", "X-Remote-Group", "system:masters", "X-Forwarded-For", "203.0.113.9",
		"X-Drover-Identity", "eyJ1c2VybmFtZSI6InJvb3QifQ==", "Impersonate-Node", "n1", "X-Custom", "kept", "User-Agent", "kubectl/v1.36")
	r.Body = io.NopCloser(strings.NewReader("body"))
	got := w.send(r)
	s := got.echoed(t)
	if s.Method != "POST" || s.URI != "/api/v1/namespaces/a/configmaps/x%2Fy?dryRun=All&fieldManager=%C3%A4" || s.Body != "body" {
		t.Errorf("the cluster was asked %s %s %q", s.Method, s.URI, s.Body)
	}
	for name, want := range map[string][]string{
		"Impersonate-User": {"jane"}, "Impersonate-Group": {"ops", "system:authenticated"}, "Impersonate-Uid": {"7"},
		"Impersonate-Extra-Team%2fx": {"blue"},
		"X-Custom":                   {"kept"}, "X-Forwarded-For": {"127.0.0.1"}, "User-Agent": {"kubectl/v1.36"},
		"Authorization": nil, "Cookie": nil, "X-Remote-User": nil, "X-Remote-Group": nil, "X-Drover-Identity": nil, "Impersonate-Node": nil,
	} {
		if diff := cmp.Diff(want, s.Header[name]); diff != "" {
			t.Errorf("header %s (-want +got):\n%s", name, diff)
		}
	}
	if id := got.Header.Values("Audit-Id"); len(id) != 1 || id[0] == "" || id[0] != s.Header.Get("Audit-Id") {
		t.Errorf("the client has Audit-ID %v, the cluster %q", id, s.Header.Get("Audit-Id"))
	}
	if got.ProtoMajor != 2 {
		t.Errorf("the hub answers with %s", got.Proto)
	}
	if dials := w.agents.dials; len(dials) != 1 || dials[0] != "drover kube-api" {
		t.Errorf("dials %v", dials)
	}
}

func TestErrors(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	w.allow("jane get clusters/asleep", "jane get clusters/plain", "jane get clusters/orphan")
	for name, test := range map[string]struct {
		path, token string
		code        int
		reason      metav1.StatusReason
		message     string
		retry       bool
	}{
		"no credential": {path: connectedCluster + "/api", code: 401, reason: "Unauthorized", message: "hub kubeconfig"},
		"unknown token": {path: connectedCluster + "/api", token: "stolen", code: 401, reason: "Unauthorized", message: "does not know"},
		"too many unknown tokens": {path: connectedCluster + "/api", token: "flood", code: 429, reason: "TooManyRequests",
			message: "wrong credentials", retry: true},
		"authentication unavailable": {path: connectedCluster + "/api", token: "outage", code: 503, reason: "ServiceUnavailable",
			message: "hub's own cluster", retry: true},
		"authorization unavailable": {path: connectedCluster + "/api", token: "is-unlucky", code: 503, reason: "ServiceUnavailable",
			message: "may reach", retry: true},
		"no rights": {path: connectedCluster + "/api", token: "is-bob", code: 403, reason: "Forbidden",
			message: `User "bob" cannot get resource "clusters/proxy" in API group "provisioning.cattle.io" in the namespace "fleet"`},
		"token for the cluster": {path: connectedCluster + "/api", token: "only-" + connectedCluster, code: 200},
		"token for another cluster": {path: connectedCluster + "/api", token: "only-" + disconnectedCluster, code: 403, reason: "Forbidden",
			message: "for another cluster"},
		"unknown cluster":  {path: "c-m-none/api", token: "is-jane", code: 404, reason: "NotFound", message: `no cluster "c-m-none"`},
		"deleted Cluster":  {path: "c-m-orphan/api", token: "is-jane", code: 404, reason: "NotFound", message: "fleet/orphan"},
		"previous Cluster": {path: previousCluster + "/api", token: "is-jane", code: 404, reason: "NotFound", message: "fleet/awake"},
		"disconnected": {path: disconnectedCluster + "/api", token: "is-jane", code: 503, reason: "ServiceUnavailable",
			message: "not connected to the hub", retry: true},
		"no rights to Cluster API's Cluster": {path: capiCluster + "/api", token: "is-jane", code: 403, reason: "Forbidden",
			message: `API group "cluster.x-k8s.io"`},
		"no cluster in the path":     {path: "", token: "is-jane", code: 404, reason: "NotFound", message: "/k8s/clusters/<id of the cluster>"},
		"impersonation without user": {path: connectedCluster + "/group", token: "is-jane", code: 400, reason: "BadRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.request("GET", "/k8s/clusters/"+test.path, test.token)
			if strings.HasSuffix(test.path, "/group") {
				r.Header.Set("Impersonate-Group", "system:masters")
			}
			got := w.send(r)
			if got.StatusCode != test.code || test.code != 200 && (got.status.Kind != "Status" || got.status.Reason != test.reason) ||
				!strings.Contains(got.status.Message, test.message) {
				t.Errorf("%s: %s", got.Status, got.body)
			}
			if after := got.Header.Get("Retry-After"); (after != "") != test.retry {
				t.Errorf("Retry-After %q", after)
			}
		})
	}
	w.allow("jane get capi-clusters/plain")
	if got := w.send(w.request("GET", "/k8s/proxy/"+capiCluster+"/version", "is-jane")); got.echoed(t).URI != "/version" {
		t.Errorf("a cluster of plain Cluster API objects: %s", got.body)
	}
}

// TestDeletedCluster checks that nothing is cached of a deleted cluster.
func TestDeletedCluster(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	path := "/k8s/clusters/" + connectedCluster + "/api"
	if got := w.send(w.request("GET", path, "is-jane")); got.StatusCode != 200 {
		t.Fatal(got.body)
	}
	cluster := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: connectedCluster}}
	if err := w.clients.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if got := w.send(w.request("GET", path, "is-jane")); got.StatusCode != 404 {
		t.Errorf("%s: %s", got.Status, got.body)
	}
}

// TestImpersonation checks that users can impersonate only whom the management cluster allows.
func TestImpersonation(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	path := "/k8s/clusters/" + connectedCluster + "/api"
	w.allow("jane impersonate users/ann", "jane impersonate groups/devs", "jane impersonate uids/9", "jane impersonate userextras/red",
		"jane impersonate serviceaccounts/robot",
		"system:serviceaccount:team:robot get clusters/awake")
	s := w.send(w.request("GET", path, "is-jane", "Impersonate-User", "ann", "Impersonate-Group", "devs", "Impersonate-Uid", "9",
		"Impersonate-Extra-Team", "red")).echoed(t)
	if s.Header.Get("Impersonate-User") != "ann" || !cmp.Equal(s.Header["Impersonate-Group"], []string{"devs", "system:authenticated"}) ||
		s.Header.Get("Impersonate-Uid") != "9" ||
		s.Header.Get("Impersonate-Extra-Team") != "red" || len(s.Header["Impersonate-Extra-Team%2fx"]) != 0 {
		t.Errorf("the cluster sees %v", s.Header)
	}
	// The impersonated user is one of the management cluster, as she is.
	if s := w.send(w.request("GET", path, "is-jane", "Impersonate-User",
		"system:serviceaccount:team:robot")).echoed(t); s.Header.Get("Impersonate-User") != "drover:hub:system:serviceaccount:team:robot" {
		t.Errorf("the cluster sees %v", s.Header)
	}
	if s := w.send(w.request("GET", path,
		"is-system:serviceaccount:team:robot")).echoed(t); s.Header.Get("Impersonate-User") != "drover:hub:system:serviceaccount:team:robot" {
		t.Errorf("the cluster sees %v", s.Header)
	}
	for _, headers := range [][]string{{"Impersonate-User", "root"}, {"Impersonate-User", "ann", "Impersonate-Group", "system:masters"},
		{"Impersonate-User", "ann", "Impersonate-Extra-Team", "green"}} {
		if got := w.send(w.request("GET", path, "is-jane", headers...)); got.StatusCode != 403 ||
			!strings.Contains(got.status.Message, `"jane" cannot impersonate`) {
			t.Errorf("%v: %s", headers, got.body)
		}
	}
	events := w.events("ResponseComplete", 6)
	if e := events[0]; e.User.Username != "jane" || e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != "ann" {
		t.Errorf("event %+v", e)
	}
	if e := events[2]; e.User.Username != "system:serviceaccount:team:robot" || e.ImpersonatedUser == nil ||
		e.ImpersonatedUser.Username != "drover:hub:system:serviceaccount:team:robot" {
		t.Errorf("event %+v", e)
	}
}

// TestAdministrator checks that the administrator of the management cluster is administrator of the clusters that the hub has provisioned,
// and of no others.
func TestAdministrator(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	w.allow("admin get clusters/awake", "admin get clusters/imported")
	for cluster, group := range map[string]string{connectedCluster: "system:masters", importedCluster: "drover:hub:system:masters"} {
		s := w.send(w.request("GET", "/k8s/clusters/"+cluster+"/api", "admin")).echoed(t)
		if s.Header.Get("Impersonate-User") != "admin" || !cmp.Equal(s.Header["Impersonate-Group"], []string{group}) {
			t.Errorf("%s sees %v", cluster, s.Header)
		}
	}
}

// TestSpacesInNames checks that nobody is somebody else in a cluster because a header loses the spaces at both ends of its value.
func TestSpacesInNames(t *testing.T) {
	path := "/k8s/clusters/" + connectedCluster + "/api"
	as := func(name string) func(*Options) {
		return func(opts *Options) {
			opts.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: []string{"ops", " system:masters", "devs\t"}}}, true, nil
			})
		}
	}
	w := newEnv(t, http.HandlerFunc(echoRequest), as("jane"))
	if s := w.send(w.request("GET", path, "any")).echoed(t); !cmp.Equal(s.Header["Impersonate-Group"], []string{"ops"}) {
		t.Errorf("the cluster sees %v", s.Header)
	}
	for _, name := range []string{" system:drover:hub", "jane "} {
		w := newEnv(t, http.HandlerFunc(echoRequest), as(name))
		w.allow(name + " get clusters/awake")
		if got := w.send(w.request("GET", path, "any")); got.StatusCode != http.StatusForbidden ||
			!strings.Contains(got.status.Message, "begins or ends with a space") {
			t.Errorf("%q: %s %s", name, got.Status, got.body)
		}
	}
}

// TestLocation checks that the Location of a redirect always leads to the same cluster: clients follow it with their credential for the
// hub.
func TestLocation(t *testing.T) {
	const root = "/k8s/clusters/" + connectedCluster
	for location, want := range map[string]string{
		"/api/v1/x": root + "/api/v1/x", "relative": root + "/api/relative", "?limit=1": root + "/api/pods?limit=1", "../x": root + "/x",
		root + "/api/v1/x": root + "/api/v1/x", "/a%2Fb": root + "/a%2Fb", "/": root + "/",
		"https://kubernetes.default.svc/x?a=b#c": root + "/x?a=b#c",
		// Ways out, to another cluster or to the hub itself.
		"/k8s/clusters/c-m-2/api": root + "/k8s/clusters/c-m-2/api", "/v3/tokens": root + "/v3/tokens",
		"../../../../../c-m-2/api": root + "/c-m-2/api", root + "/../c-m-2/api": root + "/k8s/clusters/c-m-2/api",
		root + "x/api":             root + root + "x/api",
		root + "/%2e%2e/c-m-2/api": "", root + "/..%2fc-m-2/api": "",
		// Ways to other hosts.
		"https://elsewhere/": "", "http://elsewhere/": "", "//elsewhere/": "", "http://kubernetes.default.svc/": "",
		"https://kubernetes.default.svc:444/": "", "https://me@kubernetes.default.svc/": "", "mailto:x": "", "https:///x": "", "%zz": "",
		`/\elsewhere/`: root + "/%5Celsewhere/",
	} {
		for _, code := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusCreated} {
			w := newEnv(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Location", location)
				rw.WriteHeader(code)
			}))
			got := w.send(w.request("GET", root+"/api/pods", "is-jane"))
			if l := got.Header.Get("Location"); l != want {
				t.Errorf("%d %s became %s, want %s", code, location, l, want)
			}
			refused := want == "" && code != http.StatusCreated
			if refused != (got.StatusCode == http.StatusBadGateway) || refused && !strings.Contains(got.status.Message, "it redirects to") {
				t.Errorf("%d %s: %s %s", code, location, got.Status, got.body)
			}
		}
	}
}

// TestLegacyAgent checks that the hub connects with TLS to the API server, and sends the credential, if the agent does not.
func TestLegacyAgent(t *testing.T) {
	api := httptest.NewTLSServer(http.HandlerFunc(echoRequest))
	defer api.Close()
	w := newEnv(t, http.HandlerFunc(echoRequest))
	address := api.Listener.Addr().String()
	stock := &tunnel.LegacyCluster{Address: address, Token: "downstream", CACert: pemOf(api.Certificate())}
	w.agents.backend = address
	w.agents.known[connectedCluster] = tunnel.Agent{Key: connectedCluster, Legacy: stock}
	for range 3 {
		s := w.send(w.request("GET", "/k8s/clusters/"+connectedCluster+"/api", "is-jane")).echoed(t)
		if s.Header.Get("Authorization") != "Bearer downstream" || s.Header.Get("Impersonate-User") != "jane" || s.Host != address {
			t.Errorf("the cluster sees %+v", s)
		}
	}
	if dials := w.agents.dials; len(dials) != 1 || dials[0] != "tcp "+address {
		t.Errorf("dials %v", dials)
	}
	// The next connection has no authority to trust.
	w.agents.cut()
	stock.CACert = []byte("none")
	if got := w.send(w.request("GET", "/k8s/clusters/"+connectedCluster+"/api", "is-jane")); got.StatusCode != 503 ||
		!strings.Contains(got.status.Message, "certificate authority") {
		t.Errorf("%s: %s", got.Status, got.body)
	}
}

// TestAudit checks the audit events of an ordinary and of a refused request, and that they contain no credential.
func TestAudit(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	path := "/k8s/clusters/" + connectedCluster + "/api/v1/namespaces/a/pods/p"
	w.send(w.request("GET", path, "is-jane", "Audit-Id", "chosen", "Cookie", "planted-cookie"))
	w.send(w.request("DELETE", path, "is-bob"))
	w.send(w.request("GET", path, "planted-token"))
	received := w.events("RequestReceived", 2)
	if e := received[0]; e.AuditID != "chosen" || e.Level != "Metadata" || e.Verb != "get" || e.User.Username != "jane" ||
		e.RequestURI != path ||
		e.ObjectRef == nil || e.ObjectRef.Resource != "pods" || e.ObjectRef.Namespace != "a" || e.ObjectRef.Name != "p" ||
		!cmp.Equal(e.SourceIPs, []string{"127.0.0.1"}) {
		t.Errorf("event %+v", e)
	}
	complete := w.events("ResponseComplete", 2)
	if e := complete[0]; e.ResponseStatus == nil || e.ResponseStatus.Code != 200 ||
		e.Annotations["proxy.drover.dev/cluster"] != connectedCluster {
		t.Errorf("event %+v", e)
	}
	if e := complete[1]; e.ResponseStatus == nil || e.ResponseStatus.Code != 403 || e.User.Username != "bob" || e.Verb != "delete" {
		t.Errorf("event %+v", e)
	}
	if e := w.events("ResponseStarted", 1)[0]; e.ResponseStatus == nil || e.ResponseStatus.Code != 401 ||
		!strings.Contains(e.ResponseStatus.Message, "does not know these credentials") {
		t.Errorf("event %+v", e)
	}
	raw, err := os.ReadFile(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"planted", "is-jane", "is-bob"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the audit log has %q", secret)
		}
	}
	if info, err := os.Stat(w.audit); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
}

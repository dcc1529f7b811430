package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

const machineToken = "m1-machine-plan"

// newLoggedServer is a test server whose log is returned.
func newLoggedServer(t *testing.T) (*Server, *strings.Builder) {
	t.Helper()
	logged := &strings.Builder{}
	s := newTestServer(t, "")
	s.log = funcr.New(func(_, line string) { logged.WriteString(line + "\n") }, funcr.Options{})
	return s, logged
}

func getAsMachine(s *Server, path, accept string) *httptest.ResponseRecorder {
	return getAs(s, machineToken, path, accept)
}

// TestDiscovery asks as clients of every age do.
func TestDiscovery(t *testing.T) {
	s, _ := newLoggedServer(t)
	server := httptest.NewServer(s.handler)
	defer server.Close()
	for name, configure := range map[string]func(*rest.Config, *discovery.DiscoveryClient){
		"aggregated, with a fallback": func(*rest.Config, *discovery.DiscoveryClient) {},
		"unaggregated":                func(_ *rest.Config, c *discovery.DiscoveryClient) { c.UseLegacyDiscovery = true },
		"protobuf": func(c *rest.Config, _ *discovery.DiscoveryClient) {
			c.ContentType = "application/vnd.kubernetes.protobuf"
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := &rest.Config{Host: server.URL, BearerToken: machineToken}
			configure(config, &discovery.DiscoveryClient{})
			client, err := discovery.NewDiscoveryClientForConfig(config)
			must(t, err)
			configure(config, client)
			resources, err := restmapper.GetAPIGroupResources(client)
			must(t, err)
			mapping, err := restmapper.NewDiscoveryRESTMapper(resources).RESTMapping(schema.GroupKind{Kind: "Secret"}, "v1")
			if err != nil || mapping.Resource.Resource != "secrets" || mapping.Scope.Name() != "namespace" {
				t.Errorf("mapping of Secrets: %+v, %v", mapping, err)
			}
		})
	}
}

func TestDiscoveryMediaTypes(t *testing.T) {
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	s, _ := newLoggedServer(t)
	for _, tt := range []struct{ path, accept, mediaType, body string }{
		{"/api", "", "application/json", `"versions":["v1"]`},
		{"/api", "", "application/json", `"serverAddress":"hub.example:8443"`},
		{"/apis", "*/*", "application/json", `"groups":[]`},
		{"/api/v1", aggregated + ",application/json", "application/json",
			`"resources":[{"name":"secrets","singularName":"secret","namespaced":true,"kind":"Secret","verbs":["get","list","update","watch"]}]`},
		{"/api/v1", "application/yaml", "application/yaml", "groupVersion: v1"},
		{"/api", "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf", "k8s\x00"},
		{"/api", "text/html, application/json;q=0.1", "application/json", `"kind":"APIVersions"`},
	} {
		w := getAsMachine(s, tt.path, tt.accept)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != tt.mediaType || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s as %q: %d %s %s", tt.path, tt.accept, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
	}
	for _, accept := range []string{aggregated, "text/html", "application/json;q=0"} {
		if w := getAsMachine(s, "/apis", accept); w.Code != http.StatusNotAcceptable || !strings.Contains(w.Body.String(),
			string(metav1.StatusReasonNotAcceptable)) {
			t.Errorf("as %q: %d %s", accept, w.Code, w.Body)
		}
	}
}

// TestRefusedMachineIsLogged: an operator finds in the hub's log what a machine asks for and does not get, however often it asks.
func TestRefusedMachineIsLogged(t *testing.T) {
	s, logged := newLoggedServer(t)
	for range 100 {
		if w := getAsMachine(s, "/apis/apps/v1/deployments", ""); w.Code != http.StatusForbidden {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
	if len(lines) < 1 || len(lines) > 10 {
		t.Errorf("%d lines for 100 requests:\n%s", len(lines), logged)
	}
	for _, want := range []string{`"Machine"={"name"="m1" "namespace"="ns"}`, `"path"="/apis/apps/v1/deployments"`, `"code"=403`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%s is missing in %s", want, lines[0])
		}
	}
	if strings.Contains(logged.String(), "Bearer") {
		t.Error("the token is in the log")
	}
	s, logged = newLoggedServer(t)
	getAsMachine(s, "/apis/"+strings.Repeat("x", 4000), "")
	if logged.Len() == 0 || logged.Len() > 1500 {
		t.Errorf("a long path makes %d bytes of log", logged.Len())
	}
	s, logged = newLoggedServer(t)
	getAsMachine(s, "/api", "")
	if logged.Len() != 0 {
		t.Errorf("a request that is answered is logged: %s", logged)
	}
}

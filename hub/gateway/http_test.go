package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv/loopback"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/packaging/install"
)

func TestNewRefuses(t *testing.T) {
	for _, opts := range []Options{{}, {Settings: settings.Settings{ServerURL: "http://hub"}}, {Settings: testSettings}} {
		if _, err := New(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

func TestAssets(t *testing.T) {
	dir := t.TempDir()
	agent := filepath.Join(dir, "system-agent-amd64")
	must(t, os.WriteFile(agent, []byte("one"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "admin.kubeconfig"), []byte("secret"), 0o600))
	s := newTestServer(t, dir)

	one, uninstall := tokens.Hash("one"), tokens.Hash(string(install.UninstallScript()))
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{"/assets/system-agent-amd64", 200, "one"},
		{"/assets/rancher-system-agent-amd64", 200, "one"},
		{"/assets/system-agent-amd64.sha256", 200, one + "  system-agent-amd64\n"},
		{"/assets/rancher-system-agent-amd64.sha256", 200, one + "  rancher-system-agent-amd64\n"},
		{"/assets/system-agent-uninstall.sh", 200, string(install.UninstallScript())},
		{"/assets/system-agent-uninstall.sh.sha256", 200, uninstall + "  system-agent-uninstall.sh\n"},
		{"/assets/system-agent-arm64", 404, "the hub has no system-agent-arm64: it is not in the hub's --assets-dir\n"},
		{"/assets/system-agent-arm64.sha256", 404, "the hub has no system-agent-arm64: it is not in the hub's --assets-dir\n"},
		{"/assets/admin.kubeconfig", 404, "the hub serves no file of this name\n"},
		{"/assets/..%2fadmin.kubeconfig", 404, "the hub serves no file of this name\n"},
		{"/assets/", 404, "404 page not found\n"},
		{"/cacerts", 200, "PEM\n"},
		{"/secrets", 404, "404 page not found\n"},
	} {
		if w := get(s, tt.path); w.Code != tt.code || w.Body.String() != tt.want {
			t.Errorf("%s: %d %q, want %d %q", tt.path, w.Code, w.Body, tt.code, tt.want)
		}
	}
	// A new binary has a new checksum.
	must(t, os.WriteFile(agent, []byte("second"), 0o600))
	if got := get(s, "/assets/system-agent-amd64.sha256").Body.String(); !strings.HasPrefix(got, tokens.Hash("second")) {
		t.Errorf("checksum after the binary was replaced: %s", got)
	}
	if w := get(newTestServer(t, ""), "/assets/system-agent-amd64"); w.Code != 404 || !strings.Contains(w.Body.String(),
		"without an assets folder") {
		t.Errorf("without a folder: %d %s", w.Code, w.Body)
	}
}

func TestInstallScriptKnowsTheHub(t *testing.T) {
	w := get(newTestServer(t, ""), "/system-agent-install.sh")
	for _, want := range []string{
		"CATTLE_SERVER='https://hub.example:8443'\n",
		"CATTLE_CA_CHECKSUM='" + tokens.Hash("PEM\n") + "'\n",
		"CATTLE_AGENT_BINARY_BASE_URL='https://hub.example:8443/assets'\n",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the script lacks %q", want)
		}
	}
}

func TestBeforeCachesAreFilled(t *testing.T) {
	s := newTestServer(t, "")
	delays := map[string]bool{}
	for range 64 {
		w := get(s, "/healthz")
		if w.Code != 503 || !strings.Contains(w.Body.String(), "the hub is starting") {
			t.Fatalf("health: %d %v %s", w.Code, w.Header(), w.Body)
		}
		delays[w.Header().Get("Retry-After")] = true
	}
	if len(delays) != 2 || !delays["3"] || !delays["4"] {
		t.Errorf("all must retry after %v, want some after 3 and some after 4 seconds", delays)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/v3/connect/agent", nil)
	r.Header.Set("Authorization", "Bearer x")
	if s.handler.ServeHTTP(w, r); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("registration: %d %s", w.Code, w.Body)
	}
}

// TestListensWhenCachesAreFilled has a Kubernetes API that does not answer: nothing listens, so that machines are refused at no cost.
func TestListensWhenCachesAreFilled(t *testing.T) {
	asked := make(chan struct{}, 16)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer api.Close()
	s := newTestServer(t, "")
	s.secrets = secretcache.New(kubernetes.NewForConfigOrDie(&rest.Config{Host: api.URL}), logr.Discard())
	scheme := runtime.NewScheme()
	must(t, errors.Join(metav1.AddMetaToScheme(scheme), managementv3.AddToScheme(scheme)))
	s.opts.Cache = &informertest.FakeInformers{Scheme: scheme}
	var err error
	s.opts.Listen, err = loopback.FreeAddress("127.0.0.1")
	must(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	select {
	case <-asked:
	case err := <-ended:
		t.Fatalf("the gateway ended: %v", err)
	}
	if conn, err := net.Dial("tcp", s.opts.Listen); err == nil {
		_ = conn.Close()
		t.Error("the gateway listens before its caches are filled")
	}
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "does not listen") {
		t.Errorf("before it listens: %v", err)
	}
	cancel()
	must(t, <-ended)
}

func TestReady(t *testing.T) {
	s := newTestServer(t, "")
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "does not listen") {
		t.Errorf("before it listens: %v", err)
	}
	s.listening.Store(true)
	if err := s.Ready(); !errors.Is(err, secretcache.ErrNotSynced) {
		t.Errorf("before its caches are filled: %v", err)
	}
	s.Unready()
	if err := s.Ready(); !errors.Is(err, plandelivery.ErrDraining) {
		t.Errorf("when it is about to stop: %v", err)
	}
}

func TestRegistrationLimits(t *testing.T) {
	s := newTestServer(t, "")
	limiter := ratelimit.New(1, 2)
	s.registrants.known.limiter, s.registrants.unknown.limiter = limiter, limiter
	var codes []int
	for range 3 {
		codes = append(codes, get(s, "/v3/connect/agent").Code)
	}
	if codes[0] != 401 || codes[1] != 401 || codes[2] != 429 {
		t.Errorf("answers %v", codes)
	}
}

// TestAPIWithoutCredentials checks that nothing of the API is served to unauthenticated clients, and that they are answered as Kubernetes
// does.
func TestAPIWithoutCredentials(t *testing.T) {
	s := newTestServer(t, "")
	for _, path := range []string{
		"/version", "/api", "/api/v1/namespaces/ns/secrets?fieldSelector=metadata.name%3Dx", "/api/v1/namespaces/ns/secrets/x", "/api/v1/secrets",
		"/apis/apps/v1/deployments", "/openapi/v2",
	} {
		w := get(s, path)
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != http.StatusUnauthorized || status.Code != 401 ||
			status.Kind != "Status" || status.Reason != metav1.StatusReasonUnauthorized {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestPage checks that docs/gateway.md lists every endpoint.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/gateway.md")
	must(t, err)
	for _, rt := range newTestServer(t, "").routes() {
		_, path, _ := strings.Cut(rt.pattern, " ") // a pattern without a method is what machines may not read
		path, _, _ = strings.Cut(path, "{")
		if !strings.Contains(string(page), " "+path) && !strings.Contains(string(page), "`"+path) {
			t.Errorf("%s is not in docs/gateway.md", rt.pattern)
		}
	}
}

func TestAssetHead(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "system-agent-amd64"), []byte("one"), 0o600))
	w := httptest.NewRecorder()
	newTestServer(t, dir).handler.ServeHTTP(w, httptest.NewRequest("HEAD", "/assets/system-agent-amd64", nil))
	if w.Code != 200 || w.Header().Get("Content-Length") != "3" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

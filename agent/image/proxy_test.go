package image

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestProxyOfTheEnvironment pulls in a process of its own, since the environment is read once. Registries that NO_PROXY names are asked
// without a proxy.
func TestProxyOfTheEnvironment(t *testing.T) {
	if image := os.Getenv("TEST_PULL"); image != "" {
		s := newStore(t, "mirrors:\n  registry.invalid:\n    endpoint: [\"http://registry.invalid\"]\n")
		s.patience = time.Millisecond
		got, err := stage(t, s, image)
		checkStaged(t, got, err)
		return
	}
	h := newRegistry(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	var mu sync.Mutex
	var all []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		all = append(all, r.Method+" "+r.RequestURI)
		mu.Unlock()
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		h.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	pull := func(env ...string) (out string, asked []string, err error) {
		mu.Lock()
		all = nil
		mu.Unlock()
		cmd := exec.Command(os.Args[0], "-test.run=^TestProxyOfTheEnvironment$")
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TEST_PULL=registry.invalid/a/b:v1"}, env...)
		raw, err := cmd.CombinedOutput()
		mu.Lock()
		defer mu.Unlock()
		return string(raw), all, err
	}
	if out, asked, err := pull("HTTP_PROXY=" + proxy.URL); err != nil || len(asked) < 4 ||
		!strings.HasPrefix(asked[0], "GET http://registry.invalid/v2/") {
		t.Errorf("asked %v: %s", asked, out)
	}
	if out, asked, err := pull("https_proxy=" + proxy.URL); err == nil || len(asked) == 0 ||
		asked[len(asked)-1] != "CONNECT registry.invalid:443" {
		t.Errorf("asked %v: %s", asked, out)
	}
	if out, asked, err := pull("HTTP_PROXY="+proxy.URL, "HTTPS_PROXY="+proxy.URL, "NO_PROXY=10.0.0.0/8,.invalid"); err == nil ||
		len(asked) != 0 || !strings.Contains(out, "lookup registry.invalid") {
		t.Errorf("asked %v: %s", asked, out)
	}
}

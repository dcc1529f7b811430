package apiproxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/recorder"
)

// TestLimits checks that a user with too many concurrent requests to a cluster waits, and that other users do not.
func TestLimits(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	w := newEnv(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" || r.URL.Query().Has("watch") {
			arrived <- struct{}{}
			<-release
		}
	}), func(o *Options) { o.Limits = Limits{Requests: 2, Watches: 1, Upgrades: 1} })
	w.allow("ann get clusters/awake", "jane get capi-clusters/plain")
	path := "/k8s/clusters/" + connectedCluster
	done := make(chan int, 10)
	for _, wait := range []string{"/wait", "/wait", "/api/v1/pods?watch=1"} {
		go func() { done <- w.send(w.request("GET", path+wait, "is-jane")).StatusCode }()
		<-arrived
	}
	for name, test := range map[string]struct {
		path, token string
		want        int
	}{
		"one request more": {path: path + "/api", token: "is-jane", want: 429},
		"one watch more":   {path: path + "/api/v1/nodes?watch=1", token: "is-jane", want: 429},
		"another user":     {path: path + "/api", token: "is-ann", want: 200},
		"another cluster":  {path: "/k8s/clusters/" + capiCluster + "/api", token: "is-jane", want: 200},
	} {
		got := w.send(w.request("GET", test.path, test.token))
		if got.StatusCode != test.want || test.want == 429 &&
			(got.Header.Get("Retry-After") == "" || !strings.Contains(got.status.Message, "as many as the hub lets one user have")) {
			t.Errorf("%s: %s %s", name, got.Status, got.body)
		}
	}
	close(release)
	for range 3 {
		if code := <-done; code != 200 {
			t.Errorf("one of those that were let in got %d", code)
		}
	}
	if got := w.send(w.request("GET", path+"/api", "is-jane")); got.StatusCode != 200 {
		t.Errorf("afterwards: %s %s", got.Status, got.body)
	}
}

// TestDrain checks that a request under way is answered before the tunnels end, while further ones are refused and watches are not waited
// for.
func TestDrain(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	w := newEnv(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		if r.URL.Query().Has("watch") {
			<-r.Context().Done()
			return
		}
		<-release
	}))
	path := "/k8s/clusters/" + connectedCluster
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		if response, err := w.client(true).Do(w.request("GET", path+"/api/v1/pods?watch=1", "is-jane").WithContext(watching)); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-arrived
	answered := make(chan int, 1)
	go func() {
		answered <- w.send(w.request("POST", path+"/api/v1/namespaces/a/configmaps", "is-jane")).StatusCode
	}()
	<-arrived

	short, end := context.WithCancel(t.Context())
	end()
	w.handler.Drain(short) // does not wait for longer than it may
	got := w.send(w.request("GET", path+"/api", "is-jane"))
	if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" ||
		!strings.Contains(got.status.Message, "stopping") {
		t.Errorf("while it drains: %s %s", got.Status, got.body)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		w.handler.Drain(t.Context())
	}()
	select {
	case <-drained:
		t.Error("a request under way is not waited for")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if code := <-answered; code != http.StatusOK {
		t.Errorf("the request under way got %d", code)
	}
	<-drained
}

// TestUpgradeLimit checks the response to an exec that exceeds the limit.
func TestUpgradeLimit(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest), func(o *Options) { o.Limits = Limits{Upgrades: 1} })
	if !w.handler.limits.enter(limitKey{"jane", connectedCluster, upgrade}) {
		t.Fatal("the first is refused")
	}
	r := w.request("GET", "/k8s/clusters/"+connectedCluster+"/api/v1/namespaces/a/pods/p/exec?command=sh", "is-jane", "Connection", "Upgrade",
		"Upgrade", "websocket")
	response, err := w.client(false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != 429 {
		t.Errorf("it is answered with %s", response.Status)
	}
}

// TestTimeToRead: every answer must be read within some time, but for those without an end.
func TestTimeToRead(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	w.allow("jane get clusters/asleep")
	for name, test := range map[string]struct {
		path, token string
		code        int
		want        time.Duration
	}{
		"no cluster":               {path: "", code: 404, want: refusalTimeout},
		"no credential":            {path: connectedCluster + "/api", code: 401, want: refusalTimeout},
		"too many unknown tokens":  {path: connectedCluster + "/api", token: "flood", code: 429, want: refusalTimeout},
		"no rights":                {path: connectedCluster + "/api", token: "is-bob", code: 403, want: refusalTimeout},
		"watch, disconnected":      {path: disconnectedCluster + "/api/v1/pods?watch=true", token: "is-jane", code: 503, want: refusalTimeout},
		"ordinary, of the cluster": {path: connectedCluster + "/api", token: "is-jane", code: 200, want: readTimeout},
		"watch, of the cluster":    {path: connectedCluster + "/api/v1/pods?watch=true", token: "is-jane", code: 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/k8s/clusters/"+test.path, nil)
		r.Header.Set("Authorization", "Bearer "+test.token)
		begin, answer := time.Now(), recorder.New()
		w.handler.ServeHTTP(answer, r)
		var limit time.Duration
		if !answer.Deadline.IsZero() {
			limit = answer.Deadline.Sub(begin).Round(time.Minute)
		}
		if answer.Code != test.code || limit != test.want {
			t.Errorf("%s: %d %s, to be read within %s, want %s", name, answer.Code, answer.Body, limit, test.want)
		}
	}
}

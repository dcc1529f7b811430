package egress

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// slowServer answers each request after a time, and asks for another attempt where it has failed.
type slowServer struct {
	after time.Duration
	code  int
}

func (s slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(s.after):
	}
	found := map[string]string{
		"/api":    `{"kind":"APIVersions","apiVersion":"v1","versions":["v1"]}`,
		"/apis":   `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"nodes","kind":"Node"}]}`,
	}
	return &http.Response{StatusCode: s.code, Header: http.Header{"Content-Type": {jsonType}, "Retry-After": {"5"}},
		Body: io.NopCloser(strings.NewReader(found[r.URL.Path]))}, nil
}

// TestDiscovery: to find a kind takes three requests at most, each of which ends after the timeout of the client with all of its attempts,
// although discovery has no context. Controllers wait for it, and others for the lock of the one that does it.
func TestDiscovery(t *testing.T) {
	const timeout = 10 * time.Second // that of Cluster API's cluster cache
	clusters, cluster := New(), client.ObjectKey{Namespace: "ns", Name: "demo"}
	for name, tt := range map[string]struct {
		server slowServer
		fails  bool
		atMost time.Duration
	}{
		"it hangs":                 {slowServer{time.Hour, http.StatusOK}, true, timeout},
		"it asks for attempts":     {slowServer{4 * time.Second, http.StatusServiceUnavailable}, true, timeout},
		"it asks for many at once": {slowServer{0, http.StatusTooManyRequests}, true, timeout},
		"it is slow":               {slowServer{9 * time.Second, http.StatusOK}, false, 3 * timeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			to := &connection{server: &url.URL{Scheme: "https", Host: "10.0.0.1:6443"}, next: newAnswers(cluster, tt.server)}
			clusters.set(hostOf(cluster), to)
			config := &rest.Config{Host: clusters.url(cluster, to), Transport: clusters, Timeout: timeout}
			remote, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			mapper, err := apiutil.NewDynamicRESTMapper(config, remote)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			_, err = mapper.RESTMapping(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "v1")
			if took := time.Since(begin); (err != nil) != tt.fails || took > tt.atMost {
				t.Errorf("%s: %v after %s, want at most %s", name, err, took, tt.atMost)
			}
		})
	}
}

package embedded

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// requests is a transport that looks at each request first.
type requests struct {
	http.RoundTripper
	see func(*http.Request)
}

func (r requests) RoundTrip(request *http.Request) (*http.Response, error) {
	r.see(request)
	return r.RoundTripper.RoundTrip(request)
}

// TestRewriteOutlivesHistory: all Secrets are written again, also if that takes longer than etcd keeps what was there at the beginning.
func TestRewriteOutlivesHistory(t *testing.T) {
	opts := Options{DataDir: t.TempDir()}
	server, client := start(t, opts)
	const all = rewritePage + 20
	for range all {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "one-"}}
		if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(opts.etcdDir(), etcdSocket)}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()

	compacted, written := false, 0
	config := rest.CopyConfig(server.RestConfig())
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return requests{next, func(r *http.Request) {
			if r.Method == http.MethodPut {
				written++
			}
			if r.URL.Query().Get("continue") == "" || compacted {
				return
			}
			compacted = true
			if _, err := etcd.Compact(t.Context(), int64(versionOf(t, writeConfigMap(t, client)))); err != nil {
				t.Error(err)
			}
		}}
	})
	e := &encryption{key: "new", rewrite: true, stateFile: filepath.Join(t.TempDir(), "state.json")}
	if err := e.rewriteSecrets(t.Context(), config, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if !compacted || written < all {
		t.Errorf("%d of %d Secrets were written; compacted %v", written, all, compacted)
	}
}

// TestRewriteGoesOn: one Secret that cannot be written keeps neither the others from being encrypted nor the hub from starting, and the
// earlier key stays needed.
func TestRewriteGoesOn(t *testing.T) {
	refused, written := "one", 0
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"kind":"SecretList","apiVersion":"v1","items":[{"metadata":{"namespace":"a","name":"one"}},{"metadata":{"namespace":"a",
				"name":"two"}}]}`)
		case path.Base(r.URL.Path) == refused:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"by a webhook"}`)
		default:
			written++
			fmt.Fprint(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"a","name":"two"}}`)
		}
	}
	api := httptest.NewServer(http.HandlerFunc(answer))
	defer api.Close()
	e := &encryption{key: "new", rewrite: true, stateFile: filepath.Join(t.TempDir(), encryptionState)}
	if err := e.writeState(state{Key: "new", Previous: []string{"earlier"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []state{{Key: "new", Previous: []string{"earlier"}}, {Key: "new", Rewritten: true}} {
		var log strings.Builder
		written = 0
		if err := e.rewriteSecrets(t.Context(), &rest.Config{Host: api.URL}, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		got, err := readState(e.stateFile)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v, the state (-want +got):\n%s", err, diff)
		}
		if written == 0 || strings.Contains(log.String(), "a/one") == want.Rewritten {
			t.Errorf("%d written, the log says %s", written, log.String())
		}
		refused = ""
	}
}

package redirect

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestRestrict: a server that redirects to another one does not get the client's token there, whichever redirect it is and however the
// credential is put in.
func TestRestrict(t *testing.T) {
	var seen []string
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
	}))
	defer thief.Close()
	var to string
	var code int
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/here" {
			return
		}
		w.Header()["Location"] = []string{to}
		w.WriteHeader(code)
	}))
	defer server.Close()
	config := func() *rest.Config {
		return &rest.Config{Host: server.URL, BearerToken: "hush", TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}}
	}
	get := func(config *rest.Config) error {
		t.Helper()
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(server.URL + "/api")
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}

	// Without it, the token does go there: else this test proves nothing.
	to, code = thief.URL+"/", http.StatusFound
	if err := get(config()); err != nil || len(seen) != 1 || seen[0] != "Bearer hush" {
		t.Fatalf("a plain client: %v, and the other server saw %q", err, seen)
	}
	seen = nil
	for _, code = range []int{301, 302, 303, 307, 308} {
		for _, to = range []string{thief.URL + "/", strings.Replace(server.URL, "https:", "http:", 1), "//127.0.0.1:1/", "https://127.0.0.2/",
			"%zz"} {
			restricted := config()
			Restrict(restricted)
			var refused *Error
			if err := get(restricted); !errors.As(err, &refused) && to != "%zz" || err == nil || strings.Contains(err.Error(), "hush") {
				t.Errorf("%d to %s: %v", code, to, err)
			}
		}
		for _, to = range []string{"/here", "here", server.URL + "/here"} {
			restricted := config()
			Restrict(restricted)
			if err := get(restricted); err != nil {
				t.Errorf("%d to %s: %v", code, to, err)
			}
		}
	}
	if len(seen) > 0 {
		t.Errorf("the other server saw %q", seen)
	}
}

// Ports that need not be written are written here and left out there; answers that are no redirects pass.
func TestOrigin(t *testing.T) {
	for location, refused := range map[string]bool{"https://a:443/x": false, "https://a/x": false, "https://a:444/x": true,
		"http://a:443/": true, "": false} {
		next := roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {location}}, Body: http.NoBody, Request: r}, nil
		})
		answer, err := Transport(next).RoundTrip(httptest.NewRequest("GET", "https://a/", nil))
		if err == nil {
			_ = answer.Body.Close()
		}
		if (err != nil) != refused {
			t.Errorf("%q: %v", location, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

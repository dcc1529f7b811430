package tunnelaccess

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/access/clusteragent"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/redirect"
)

// TestConfig: requests have a token that is valid for a while, and a new one is created only when that expires.
func TestConfig(t *testing.T) {
	var seen []string
	url, authorities := respondWith(t, 200, func(r *http.Request) { seen = append(seen, r.URL.Path+" "+r.Header.Get("Authorization")) })
	now := time.Unix(1000, 0)
	made := 0
	access := &Access{
		Settings: settings.Settings{ServerURL: url, CACerts: authorities}, Now: func() time.Time { return now },
		Issue: func(u user.Info, cluster string, ttl time.Duration, _ string, persistent bool) (string, error) {
			if persistent || ttl > 10*time.Minute || u.GetGroups()[0] != clusteragent.ControllersGroup {
				t.Errorf("made a token for %s of %s, persistent: %t", u, ttl, persistent)
			}
			made++
			return fmt.Sprint(cluster, made), nil
		},
	}
	client, err := rest.HTTPClientFor(access.Config("c-m-a"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		answer, err := client.Get(access.Server("c-m-a") + "/version")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		now = now.Add(4 * time.Minute)
	}
	want := []string{"c-m-a1", "c-m-a1", "c-m-a2"}
	for i := range want {
		if got := seen[i]; got != "/k8s/clusters/c-m-a/version Bearer "+want[i] {
			t.Errorf("request %d is %s, want the token %s", i, got, want[i])
		}
	}
}

// TestConfigNoRedirect: redirects of a cluster to another host are not followed with the hub's token.
func TestConfigNoRedirect(t *testing.T) {
	elsewhere, _ := respondWith(t, 200, func(r *http.Request) { t.Errorf("another server sees %s", r.Header.Get("Authorization")) })
	server := httptest.NewTLSServer(http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
	defer server.Close()
	access := &Access{
		Settings: settings.Settings{ServerURL: server.URL,
			CACerts: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
		Now:   time.Now,
		Issue: func(user.Info, string, time.Duration, string, bool) (string, error) { return "hush", nil },
	}
	client, err := rest.HTTPClientFor(access.Config("c-m-a"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(access.Server("c-m-a") + "/version")
	var refused *redirect.Error
	if !errors.As(err, &refused) {
		t.Errorf("got %v: %v", answer, err)
	}
}

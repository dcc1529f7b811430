package clusteragent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTrust(t *testing.T) {
	sum := func(text string) string {
		s := sha256.Sum256([]byte(text))
		return hex.EncodeToString(s[:])
	}
	for _, test := range []struct {
		name string
		// bundle is the file ca.crt, offered what /cacerts answers; "own" stands for the hub's.
		bundle, offered, checksum string
		err                       string
	}{
		{name: "the Secret's authorities", bundle: "own"},
		{name: "the Secret's authorities count before the checksum", bundle: "own", checksum: sum("other")},
		{name: "by the checksum", offered: "own", checksum: "own"},
		{name: "another checksum", offered: "own", checksum: sum("other"), err: "which is not that of --ca-checksum (CATTLE_CA_CHECKSUM)"},
		{name: "no authorities there", checksum: sum("other"), err: "/cacerts returned HTTP 404"},
		{name: "those of the machine", err: "certificate signed by unknown authority"},
		{name: "a file that holds none", bundle: "none", err: "reading the hub's CA certificates: no certificate found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := newFakeHub(t)
			exchange := fake.web.Config.Handler
			asked := 0
			fake.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/cacerts" {
					exchange.ServeHTTP(w, r)
					return
				}
				asked++
				if r.Header.Get("Authorization") != "" {
					t.Error("a token was sent to an unverified server")
				}
				if test.offered == "" {
					http.NotFound(w, r)
					return
				}
				fmt.Fprint(w, strings.ReplaceAll(test.offered, "own", fake.authorities()))
			})
			if err := os.WriteFile(filepath.Join(fake.directory, "ca.crt"), []byte(strings.ReplaceAll(test.bundle, "own", fake.authorities())),
				0o600); err != nil {
				t.Fatal(err)
			}
			fake.checksum = strings.ReplaceAll(test.checksum, "own", sum(fake.authorities()))
			for range 2 {
				got, err := fake.exchange(t.Context(), registrationToken, agentID)
				if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || err == nil &&
					got.Cluster != "c-m-test" {
					t.Errorf("%+v, %v; want %q", got, err, test.err)
				}
			}
			if test.err == "" && asked > 1 {
				t.Errorf("the CAs were fetched %d times", asked)
			}
			if test.err != "" && len(fake.shown) != 0 {
				t.Error("a token was shown")
			}
		})
	}
}

func TestURL(t *testing.T) {
	folder := t.TempDir()
	h := &hubClient{directory: folder}
	if _, err := h.url(); err == nil || !strings.Contains(err.Error(), "no URL of the hub: set --server (CATTLE_SERVER)") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "url"), []byte("https://hub.example.com:8443\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := h.url(); got != "https://hub.example.com:8443" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	h.server = "https://other.example.com"
	if got, err := h.url(); got != "https://other.example.com" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestInvalidOptions(t *testing.T) {
	good := Options{Namespace: "cattle-system", Server: "https://hub.example.com", CAChecksum: strings.Repeat("0a", 32),
		AllowGroups: []string{mastersGroup}, HealthAddress: ":9440"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Server = "http://hub.example.com" },
			`--server (CATTLE_SERVER): must be such as https://hub.example.com, got "http://hub.example.com"`},
		{func(o *Options) { o.Server = "hub.example.com" }, "--server (CATTLE_SERVER): "},
		{func(o *Options) { o.CAChecksum = "abc" }, "--ca-checksum (CATTLE_CA_CHECKSUM): "},
		{func(o *Options) { o.Namespace = "" }, "--namespace: is required"},
		{func(o *Options) { o.AllowGroups = []string{"dev"} }, `--allow-group: must be system:masters, got "dev"`},
		{func(o *Options) { o.HealthAddress = "9440" }, "--health-address: "},
	} {
		o := good
		if test.change(&o); o.Validate() == nil || !strings.HasPrefix(o.Validate().Error(), test.want) {
			t.Errorf("%v; want %q", o.Validate(), test.want)
		}
	}
}

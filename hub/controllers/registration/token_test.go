package registration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/settings"
)

func TestNewToken(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		token, err := newToken()
		if err != nil {
			t.Fatal(err)
		}
		if len(token) < 54 || strings.Trim(token, tokenAlphabet) != "" {
			t.Errorf("token of %d characters with others than those of the alphabet", len(token))
		}
		if seen[token] {
			t.Error("the same token twice")
		}
		seen[token] = true
	}
}

func TestRotate(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	minutes := func(n int) time.Time { return now.Add(time.Duration(n) * time.Minute) }
	spec := func(ttl, grace int64) managementv3.ClusterRegistrationTokenSpec {
		s := managementv3.ClusterRegistrationTokenSpec{}
		if ttl > 0 {
			s.TTL = ptr.To(ttl)
		}
		if grace > 0 {
			s.GracePeriod = ptr.To(grace)
		}
		return s
	}
	for _, tt := range []struct {
		name   string
		have   tokens
		spec   managementv3.ClusterRegistrationTokenSpec
		jitter float64
		want   tokens
	}{
		{name: "first, for ever", want: tokens{current: "new"}},
		{name: "first, for a while", spec: spec(60, 0), want: tokens{current: "new", expiresAt: minutes(60)}},
		{name: "first, with jitter", spec: spec(60, 0), jitter: 0.5, want: tokens{current: "new", expiresAt: minutes(63)}},
		{name: "too short a life", spec: spec(5, 0), want: tokens{current: "new", expiresAt: minutes(30)}},
		{name: "not yet", have: tokens{current: "a", expiresAt: minutes(1)}, spec: spec(60, 0), want: tokens{current: "a", expiresAt: minutes(1)}},
		{name: "expired", have: tokens{current: "a", expiresAt: now}, spec: spec(60, 20),
			want: tokens{current: "new", previous: "a", expiresAt: minutes(60), graceExpiresAt: minutes(20)}},
		{name: "expired, default grace period", have: tokens{current: "a", expiresAt: now}, spec: spec(60, 0),
			want: tokens{current: "new", previous: "a", expiresAt: minutes(60), graceExpiresAt: minutes(48)}},
		{name: "expired, grace period too short", have: tokens{current: "a", expiresAt: now}, spec: spec(60, 5),
			want: tokens{current: "new", previous: "a", expiresAt: minutes(60), graceExpiresAt: minutes(48)}},
		{name: "grace period over", have: tokens{current: "b", previous: "a", expiresAt: minutes(9), graceExpiresAt: now}, spec: spec(60, 20),
			want: tokens{current: "b", expiresAt: minutes(9)}},
		{name: "life set later", have: tokens{current: "a"}, spec: spec(60, 0), want: tokens{current: "a", expiresAt: minutes(60)}},
		{name: "life shortened later", have: tokens{current: "a", expiresAt: minutes(9999)}, spec: spec(60, 0), want: tokens{current: "a", expiresAt: minutes(60)}},
		{name: "life unset later", have: tokens{current: "a", expiresAt: minutes(3)}, want: tokens{current: "a"}},
		{name: "unreadable expiry", have: decodeTokens(map[string][]byte{"token": []byte("a"), "expiresAt": []byte("?")}), spec: spec(60, 20),
			want: tokens{current: "new", previous: "a", expiresAt: minutes(60), graceExpiresAt: minutes(20)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := rotate(tt.have, tt.spec, now, tt.jitter, func() (string, error) { return "new", nil })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(tokens{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, decodeTokens(got.encode()), cmp.AllowUnexported(tokens{})); diff != "" {
				t.Errorf("the Secret loses something (-want +got):\n%s", diff)
			}
			again, err := rotate(got, tt.spec, now, tt.jitter, func() (string, error) { return "", fmt.Errorf("asked for another token") })
			if err != nil || again != got {
				t.Errorf("a second time gives %+v, %v", again, err)
			}
		})
	}
}

func TestNodeCommand(t *testing.T) {
	hub := settings.Settings{ServerURL: "https://hub.example.com:8443", CACerts: []byte("pem")}
	for _, tt := range []struct {
		name     string
		settings settings.Settings
		env      []rkev1.EnvVar
		from     download
		want     string
	}{
		{name: "no URL"},
		{name: "public certificate", settings: settings.Settings{ServerURL: "https://hub.example.com"},
			want: "curl -fL https://hub.example.com/system-agent-install.sh | sudo sh -s - --server https://hub.example.com --label 'cattle.io/os=linux' --token {token}"},
		{name: "own certificate", settings: hub, from: insecureDownload,
			want: "curl --insecure -fL https://hub.example.com:8443/system-agent-install.sh | sudo sh -s - --server https://hub.example.com:8443 " +
				"--label 'cattle.io/os=linux' --token {token} --ca-checksum " + hub.CAChecksum()},
		{name: "own certificate, verified", settings: hub, from: verifiedDownload,
			want: `d=$(mktemp -d) && curl --insecure -fsSL https://hub.example.com:8443/cacerts -o "$d/ca" && ` +
				`echo "` + hub.CAChecksum() + `  $d/ca" | sha256sum -c && ` +
				`curl --cacert "$d/ca" -fsSL https://hub.example.com:8443/system-agent-install.sh -o "$d/sh" && ` +
				`{ echo "export CATTLE_TOKEN={token}"; cat "$d/sh"; } | sudo sh -s - --server https://hub.example.com:8443 ` +
				`--label 'cattle.io/os=linux' --ca-checksum ` + hub.CAChecksum()},
		{name: "public certificate has nothing to verify by", settings: settings.Settings{ServerURL: "https://hub.example.com"}, from: verifiedDownload},
		{name: "variables", settings: settings.Settings{ServerURL: "https://h"}, env: []rkev1.EnvVar{{Name: "A", Value: "it's $x; rm"}, {Name: "no name;", Value: "x"}},
			want: `A='it'\''s $x; rm' curl -fL https://h/system-agent-install.sh | sudo A='it'\''s $x; rm' sh -s - --server https://h --label 'cattle.io/os=linux' --token {token}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, nodeCommand(tt.settings, tt.env, tt.from)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

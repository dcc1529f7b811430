package clusterregistrationtoken

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/ptr"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
)

// counter makes ids new1, new2 and so on; the token of an id has the hash "#" and the id.
type counter struct{ made int }

func (c *counter) newID() (string, error) {
	c.made++
	return fmt.Sprintf("new%d", c.made), nil
}

func (*counter) hashOf(id string) string { return "#" + id }

// own is how a token of the hub's is known.
func own(id string) tokens.Known { return tokens.Known{ID: id, Hash: "#" + id} }

var (
	noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	another = tokens.Known{Hash: "of another hub"}
)

func minutes(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }

func spec(ttl, grace int64) managementv3.ClusterRegistrationTokenSpec {
	s := managementv3.ClusterRegistrationTokenSpec{}
	if ttl > 0 {
		s.TTL = ptr.To(ttl)
	}
	if grace > 0 {
		s.GracePeriod = ptr.To(grace)
	}
	return s
}

func TestWanted(t *testing.T) {
	made := func(ttl int64) managementv3.ClusterRegistrationTokenSpec {
		s := spec(ttl, 0)
		s.Made = &managementv3.MadeToken{ID: "mine", Hash: "known to me"}
		return s
	}
	for _, tt := range []struct {
		name   string
		have   tokens.Registration
		spec   managementv3.ClusterRegistrationTokenSpec
		jitter float64
		want   tokens.Registration
	}{
		{name: "first, for ever", want: tokens.Registration{Current: own("new1")}},
		{name: "first, for a while", spec: spec(60, 0), want: tokens.Registration{Current: own("new1"), ExpiresAt: minutes(60)}},
		{name: "first, with jitter", spec: spec(60, 0), jitter: 0.5, want: tokens.Registration{Current: own("new1"), ExpiresAt: minutes(63)}},
		{name: "too short a life", spec: spec(5, 0), want: tokens.Registration{Current: own("new1"), ExpiresAt: minutes(30)}},
		{name: "not yet", have: tokens.Registration{Current: own("a"), ExpiresAt: minutes(1)}, spec: spec(60, 0),
			want: tokens.Registration{Current: own("a"), ExpiresAt: minutes(1)}},
		{name: "expired", have: tokens.Registration{Current: own("a"), ExpiresAt: noon, UsedBy: []string{"x"}}, spec: spec(60, 20),
			want: tokens.Registration{Current: own("new1"), Previous: own("a"), ExpiresAt: minutes(60), GraceExpiresAt: minutes(20),
				UsedBy: []string{"x"}}},
		{name: "expired, default grace period", have: tokens.Registration{Current: own("a"), ExpiresAt: noon}, spec: spec(60, 0),
			want: tokens.Registration{Current: own("new1"), Previous: own("a"), ExpiresAt: minutes(60), GraceExpiresAt: minutes(48)}},
		{name: "a hundred years, default grace period", have: tokens.Registration{Current: own("a"), ExpiresAt: noon}, spec: spec(52_560_000, 0),
			want: tokens.Registration{Current: own("new1"), Previous: own("a"), ExpiresAt: minutes(52_560_000),
				GraceExpiresAt: minutes(42_048_000)}},
		{name: "expired, grace period too short", have: tokens.Registration{Current: own("a"), ExpiresAt: noon}, spec: spec(60, 5),
			want: tokens.Registration{Current: own("new1"), Previous: own("a"), ExpiresAt: minutes(60), GraceExpiresAt: minutes(48)}},
		{name: "grace period over", have: tokens.Registration{Current: own("b"), Previous: own("a"), ExpiresAt: minutes(9), GraceExpiresAt: noon},
			spec: spec(60, 20),
			want: tokens.Registration{Current: own("b"), ExpiresAt: minutes(9)}},
		{name: "grace period not over", have: tokens.Registration{Current: own("b"), Previous: own("a"), ExpiresAt: minutes(9),
			GraceExpiresAt: minutes(1)}, spec: spec(60, 20),
			want: tokens.Registration{Current: own("b"), Previous: own("a"), ExpiresAt: minutes(9), GraceExpiresAt: minutes(1)}},
		{name: "life set later", have: tokens.Registration{Current: own("a")}, spec: spec(60, 0), want: tokens.Registration{Current: own("a"),
			ExpiresAt: minutes(60)}},
		{name: "life shortened later", have: tokens.Registration{Current: own("a"), ExpiresAt: minutes(9999)}, spec: spec(60, 0),
			want: tokens.Registration{Current: own("a"), ExpiresAt: minutes(60)}},
		{name: "life unset later", have: tokens.Registration{Current: own("a"), ExpiresAt: minutes(3)},
			want: tokens.Registration{Current: own("a")}},
		{name: "unreadable expiry", have: tokens.DecodeSecret(map[string][]byte{"tokenID": []byte("a"), "tokenHash": []byte("#a"),
			"expiresAt": []byte("?")}), spec: spec(60, 20),
			want: tokens.Registration{Current: own("new1"), Previous: own("a"), ExpiresAt: minutes(60), GraceExpiresAt: minutes(20)}},
		{name: "another key", have: tokens.Registration{Current: tokens.Known{ID: "a", Hash: "of a lost key"}}, want: tokens.Registration{
			Current: own("new1"), Previous: tokens.Known{ID: "a", Hash: "of a lost key"}, GraceExpiresAt: minutes(24 * 60)}},
		{name: "of another hub, for ever", have: tokens.Registration{Current: another, Whole: true},
			want: tokens.Registration{Current: own("new1"), Previous: another}},
		{name: "of another hub, for a while", have: tokens.Registration{Current: another, ExpiresAt: minutes(7), Whole: true}, spec: spec(60, 20),
			want: tokens.Registration{Current: own("new1"), Previous: another, ExpiresAt: minutes(60), GraceExpiresAt: minutes(27)}},
		{name: "of another hub, and one before", have: tokens.Registration{Current: another, Previous: tokens.Known{Hash: "old"},
			GraceExpiresAt: minutes(7), Whole: true},
			want: tokens.Registration{Current: another, Previous: tokens.Known{Hash: "old"}, GraceExpiresAt: minutes(7)}},
		{name: "of another hub, and the one before is over", have: tokens.Registration{Current: another, Previous: tokens.Known{Hash: "old"},
			GraceExpiresAt: noon},
			want: tokens.Registration{Current: own("new1"), Previous: another}},
		{name: "one of another hub that lasts for ever stays until the hub's own one is replaced", spec: spec(60, 20),
			have: tokens.Registration{Current: own("a"), Previous: another, ExpiresAt: noon},
			want: tokens.Registration{Current: own("new1"), Previous: own("a"), ExpiresAt: minutes(60), GraceExpiresAt: minutes(20)}},
		{name: "made by its owner", spec: made(0), have: tokens.Registration{UsedBy: []string{"x"}},
			want: tokens.Registration{Current: tokens.Known{ID: "mine", Hash: "known to me"}, UsedBy: []string{"x"}}},
		{name: "made by its owner, for a while", spec: made(30), want: tokens.Registration{Current: tokens.Known{ID: "mine", Hash: "known to me"},
			ExpiresAt: minutes(20)}},
		{name: "made by its owner, and over", spec: made(30), have: tokens.Registration{Current: tokens.Known{ID: "mine", Hash: "known to me"},
			ExpiresAt: minutes(-1)},
			want: tokens.Registration{Current: tokens.Known{ID: "mine", Hash: "known to me"}, ExpiresAt: minutes(20)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			crt := &managementv3.ClusterRegistrationToken{Spec: tt.spec}
			crt.CreationTimestamp.Time = minutes(-10)
			got, err := wanted(tt.have, crt, noon, tt.jitter, &counter{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, tokens.DecodeSecret(got.Encode()), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the Secret loses something (-want +got):\n%s", diff)
			}
			ids := &counter{}
			again, err := wanted(got, crt, noon, tt.jitter, ids)
			if err != nil || !again.Equal(got) || ids.made > 0 {
				t.Errorf("a second time gives %+v, %v", again, err)
			}
		})
	}
}

// TestWholeTokensBecomeHashes: what another hub wrote is read, and is not in what is written.
func TestWholeTokensBecomeHashes(t *testing.T) {
	const current, previous = "bcdfghjklmnpqrstvwxz2456789", "9876542zxwvtsrqpnmlkjhgfdcb"
	have := tokens.DecodeSecret(map[string][]byte{"token": []byte(current), "previousToken": []byte(previous),
		"gracePeriodExpiresAt": []byte(minutes(5).Format(time.RFC3339))})
	want := tokens.Registration{
		Current: tokens.Known{Hash: tokens.Hash(current)}, Previous: tokens.Known{Hash: tokens.Hash(previous)}, GraceExpiresAt: minutes(5),
		Whole: true,
	}
	if diff := cmp.Diff(want, have, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	got, err := wanted(have, &managementv3.ClusterRegistrationToken{}, noon, 0, &counter{})
	if err != nil || got.Equal(have) {
		t.Fatalf("the Secret would not be written: %v", err)
	}
	for key, value := range got.Encode() {
		if strings.Contains(string(value), current) || strings.Contains(string(value), previous) {
			t.Errorf("%s holds a whole token", key)
		}
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
			want: "curl -fL https://hub.example.com/system-agent-install.sh | sudo sh -s - --server https://hub.example.com --label " +
				"'cattle.io/os=linux' --token {token}"},
		{name: "own certificate", settings: hub, from: insecureDownload,
			want: "curl --insecure -fL https://hub.example.com:8443/system-agent-install.sh | sudo sh -s - --server https://hub.example.com:8443 " +
				"--label 'cattle.io/os=linux' --token {token} --ca-checksum " + hub.CAChecksum()},
		{name: "own certificate, verified", settings: hub, from: verifiedDownload,
			want: `d=$(mktemp -d) && curl --insecure --connect-timeout 15 -fsSL https://hub.example.com:8443/cacerts -o "$d/ca" && ` +
				`echo "` + hub.CAChecksum() + `  $d/ca" | sha256sum -c && ` +
				`curl --cacert "$d/ca" -fsSL https://hub.example.com:8443/system-agent-install.sh -o "$d/sh" && ` +
				`{ echo "export CATTLE_TOKEN={token}"; cat "$d/sh"; } | sudo sh -s - --server https://hub.example.com:8443 ` +
				`--label 'cattle.io/os=linux' --ca-checksum ` + hub.CAChecksum()},
		{name: "public certificate has nothing to verify by", settings: settings.Settings{ServerURL: "https://hub.example.com"},
			from: verifiedDownload},
		{name: "variables", settings: settings.Settings{ServerURL: "https://h"}, env: []rkev1.EnvVar{{Name: "A", Value: "it's $x; rm"},
			{Name: "no name;", Value: "x"}},
			want: `A='it'\''s $x; rm' curl -fL https://h/system-agent-install.sh | sudo A='it'\''s $x; rm' sh -s - --server https://h --label 'cattle.io/os=linux' --token {token}`},
		{name: "variables, verified: sudo logs arguments", settings: hub, from: verifiedDownload,
			env: []rkev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://u:p@proxy"}},
			want: `d=$(mktemp -d) && HTTPS_PROXY='http://u:p@proxy' curl --insecure --connect-timeout 15 -fsSL ` +
				`https://hub.example.com:8443/cacerts -o "$d/ca" && ` +
				`echo "` + hub.CAChecksum() + `  $d/ca" | sha256sum -c && ` +
				`HTTPS_PROXY='http://u:p@proxy' curl --cacert "$d/ca" -fsSL https://hub.example.com:8443/system-agent-install.sh -o "$d/sh" && ` +
				`{ echo "export CATTLE_TOKEN={token}"; printf '%s\n' 'export HTTPS_PROXY='\''http://u:p@proxy'\'''; cat "$d/sh"; } | ` +
				`sudo sh -s - --server https://hub.example.com:8443 --label 'cattle.io/os=linux' --ca-checksum ` + hub.CAChecksum()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, nodeCommand(tt.settings, tt.env, tt.from)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCommandEnv: a machine that registers itself keeps the agent's data where the Cluster says, as one that a provider creates does.
func TestCommandEnv(t *testing.T) {
	spec := &provisioningv1.ClusterSpec{AgentEnvVars: []rkev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy"}}}
	for dir, want := range map[rkev1.DataDirectory]string{
		"":            "sudo HTTPS_PROXY='http://proxy' sh -s -",
		"/data/agent": "sudo HTTPS_PROXY='http://proxy' CATTLE_AGENT_VAR_DIR='/data/agent' sh -s -",
	} {
		spec.RKEConfig = &provisioningv1.RKEConfig{}
		spec.RKEConfig.DataDirectories.SystemAgent = dir
		if got := nodeCommand(settings.Settings{ServerURL: "https://h"}, commandEnv(spec), plainDownload); !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s in it", dir, got, want)
		}
	}
	spec.RKEConfig = nil
	if diff := cmp.Diff(spec.AgentEnvVars, commandEnv(spec)); diff != "" {
		t.Errorf("imported (-want +got):\n%s", diff)
	}
}

package rkecontrolplane

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

func TestAddressesAndJoinURL(t *testing.T) {
	r, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	c := render.Cluster{Release: r}
	m := server("a", rollout.ProgressPending, rollout.ChangeNone, "")
	m.state.JoinURL = ""
	m.inputs.DetectedAddress = "10.0.0.9"
	if got := joinURL(c, m); got != "" {
		t.Errorf("a machine that has never worked is joined at %s", got)
	}
	m.state.Progress, m.state.ProbesPassed = rollout.ProgressApplied, true
	if got := joinURL(c, m); got != "" {
		t.Errorf("a machine that may be a learner yet is joined at %s", got)
	}
	m.state.Membership = rollout.MemberVoter
	if got := joinURL(c, m); got != "https://10.0.0.9:6443" {
		t.Errorf("got %s", got)
	}
	m.state.JoinURL = "https://10.0.0.9:6443"
	m.inputs.InternalAddresses, m.inputs.Addresses = []string{"10.0.0.2"}, []string{"203.0.113.1"}
	m.machine.Status.Addresses = []clusterv1.MachineAddress{{Type: "Hostname", Address: "a"}, {Type: "ExternalIP", Address: "203.0.113.1"},
		{Type: "InternalIP", Address: "10.0.0.1"}}
	m.reported = machinestate.ReportedAddresses(m.machine, m.bootstrap, "")
	if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2", "203.0.113.1", "10.0.0.9"}, m.addresses()); diff != "" {
		t.Error(diff)
	}
	if got := joinURL(c, m); got != "https://10.0.0.9:6443" {
		t.Errorf("an address that is still there was given up for %s", got)
	}
	m.inputs.DetectedAddress = "10.0.0.77"
	if got := joinURL(c, m); got != "https://10.0.0.1:6443" {
		t.Errorf("got %s", got)
	}
}

// A server whose address has changed is joined at the new one, although the detected address stays that of the registration. An address
// that the registration alone has, such as one of a network to the hub, is kept.
func TestJoinURLOfChangedAddress(t *testing.T) {
	r, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, recorded, joined, node, given, want, wantRecorded string }{
		{"reported", "", "10.0.0.9", "10.0.0.9", "", "10.0.0.9", "10.0.0.9"},
		{"changed", "10.0.0.9", "10.0.0.9", "10.0.0.7", "", "10.0.0.7", "10.0.0.7"},
		{"changed, then not connected", "10.0.0.7", "10.0.0.7", "", "", "10.0.0.7", "10.0.0.7"},
		{"never connected", "", "10.0.0.9", "", "", "10.0.0.9", ""},
		{"in another network", "", "10.0.0.9", "10.1.0.1", "", "10.0.0.9", ""},
		{"corrected, not connected", "10.0.0.9", "10.0.0.9", "", "10.0.0.7", "10.0.0.7", "10.0.0.7"},
		{"given, the Node has another", "10.0.0.9", "10.0.0.9", "10.1.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9"},
	} {
		m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
		m.inputs.DetectedAddress = "10.0.0.9"
		m.state.JoinURL = "https://" + tc.joined + ":6443"
		m.secret.Annotations = map[string]string{rkev1.ReportedJoinAddressAnnotation: tc.recorded}
		if tc.node != "" {
			m.reported.Internal = []string{tc.node}
		}
		if tc.given != "" {
			m.inputs.InternalAddresses = []string{tc.given}
		}
		m.state.JoinURL = joinURL(render.Cluster{Release: r}, m)
		if want := "https://" + tc.want + ":6443"; m.state.JoinURL != want {
			t.Errorf("%s: got %s, want %s", tc.name, m.state.JoinURL, want)
		}
		if got := m.reportedJoinAddress(); got != tc.wantRecorded {
			t.Errorf("%s: recorded %q, want %q", tc.name, got, tc.wantRecorded)
		}
	}
}

// TestJoinURLOfUnstableAddress: others go on joining a server whose address is not reported for a while. A user's correction counts at
// once.
func TestJoinURLOfUnstableAddress(t *testing.T) {
	r, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	const before, after = "https://10.0.0.9:6443", "https://10.0.0.7:6443"
	m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
	m.secret.Annotations = map[string]string{rkev1.JoinURLAnnotation: before, rkev1.ReportedJoinAddressAnnotation: "10.0.0.9"}
	m.secret.UID = "s"
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, release: r, machines: []*machine{m}, plans: &clusterPlans{}}
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		at       time.Duration
		reported string
		given    string
		want     string
		again    time.Duration
	}{
		{0, "10.0.0.9", "", before, 0},
		{time.Minute, "10.0.0.7", "", before, 2 * time.Minute},
		{2 * time.Minute, "10.0.0.7", "", before, time.Minute},
		{2*time.Minute + time.Second, "10.0.0.9", "", before, 0},
		{6 * time.Minute, "10.0.0.7", "", before, 2 * time.Minute},
		{8 * time.Minute, "10.0.0.7", "", after, 0},
		{12 * time.Minute, "10.0.0.9", "", before, 0},
		{13 * time.Minute, "10.0.0.7", "10.0.0.7", after, 0},
	} {
		m.secret.ResourceVersion = strconv.Itoa(i + 1) // an agent reports something all the time
		s.plans.load()
		m.known = s.plans.of(m.secret)
		s.plans.loaded()
		m.state.JoinURL, s.requeueAfter = before, 0
		m.reported.Internal, m.bootstrap.Annotations = []string{step.reported}, map[string]string{rkev1.InternalAddressAnnotation: step.given}
		s.findJoinURLs(start.Add(step.at))
		if m.state.JoinURL != step.want || s.requeueAfter != step.again {
			t.Errorf("after %s: joined at %s, again in %s", step.at, m.state.JoinURL, s.requeueAfter)
		}
	}
	s.operation, m.state.JoinURL, m.bootstrap.Annotations = restoring(start), before, nil
	if s.findJoinURLs(start.Add(time.Hour)); m.state.JoinURL != after {
		t.Errorf("in a restore: joined at %s", m.state.JoinURL)
	}
}

func TestNewToken(t *testing.T) {
	first, second := string(newToken()), string(newToken())
	if first == second || !regexp.MustCompile(`^[b-df-hj-np-tv-xz2-9]{54}$`).MatchString(first) {
		t.Errorf("got %s and %s", first, second)
	}
}

func TestCompareVersions(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"v1.36.3+k3s1", "v1.36.3+k3s1", 0}, {"v1.35.9+k3s1", "v1.36.0+k3s1", -1}, {"v1.36.10+k3s1", "v1.36.9+k3s1", 1},
		{"v1.36.3+rke2r1", "v1.36.3+rke2r2", -1}, {"v1.33.4+rke2r10", "v1.33.4+rke2r9", 1}, {"odd", "v1.36.0", -1},
	} {
		if got := compareVersions(tc.a, tc.b); got != tc.want {
			t.Errorf("compareVersions(%s, %s) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestKubeconfigServers(t *testing.T) {
	s := &scope{
		controlPlane: &rkev1.RKEControlPlane{}, cluster: &clusterv1.Cluster{}, machines: []*machine{server("a", rollout.ProgressApplied,
			rollout.ChangeNone, "")},
	}
	if _, wait := s.servers(); wait.Reason != reasons.NoCertificateAuthority {
		t.Errorf("without authorities: %+v", wait)
	}
	s.clientCA, s.serverCA = &authority{}, &authority{}
	if _, wait := s.servers(); wait.Reason != reasonWaitingForAddress {
		t.Errorf("without an address: %+v", wait)
	}
	s.machines[0].inputs.DetectedAddress = "10.0.0.9"
	if got, _ := s.servers(); len(got) != 1 || got[0].URLs[0] != "https://10.0.0.9:6443" {
		t.Errorf("got %v", got)
	}
	s.machines[0].report.Unhealthy = []string{render.APIServerProbe}
	if _, wait := s.servers(); wait.Reason != reasons.WaitingForControlPlane {
		t.Errorf("while the API is down: %+v", wait)
	}
	s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	if _, wait := s.servers(); wait.Reason != reasons.WaitingForControlPlane {
		t.Errorf("an endpoint on the loopback counts: %+v", wait)
	}
	s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "fd00::1", Port: 443}
	if got, _ := s.servers(); len(got) != 1 || got[0].URLs[0] != "https://[fd00::1]:443" {
		t.Errorf("got %v", got)
	}
}

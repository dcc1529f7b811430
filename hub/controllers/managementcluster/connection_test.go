package managementcluster

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestConnectedCondition(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	connected := &metav1.Condition{Type: "Connected", Status: metav1.ConditionTrue, Reason: "Connected"}
	gone := &metav1.Condition{Type: "Connected", Status: metav1.ConditionFalse, Reason: "Disconnected", Message: "since then"}
	unstable := &metav1.Condition{Type: "Connected", Status: metav1.ConditionFalse, Reason: "Unstable", Message: "unstable"}
	waiting := &metav1.Condition{Type: "Connected", Status: metav1.ConditionFalse, Reason: "WaitingForAgent", Message: "old words"}
	for _, tt := range []struct {
		name    string
		in      connectionInputs
		want    string // status and reason
		message string // a part of it
		again   time.Duration
	}{
		{name: "a new cluster", in: connectionInputs{now: at(0)}, want: "False WaitingForAgent",
			message: "the plans of the control plane deploy"},
		{name: "a cluster to import", in: connectionInputs{imported: true}, want: "False WaitingForAgent",
			message: `"hub import-command ns/name" for the command`},
		{name: "words for a wait are kept up to date", in: connectionInputs{previous: waiting, imported: true}, want: "False WaitingForAgent",
			message: "import-command"},
		{name: "connected for the first time", in: connectionInputs{connected: true}, want: "True Connected"},
		{name: "connected again", in: connectionInputs{connected: true, previous: gone}, want: "True Connected"},
		{name: "connected again after many losses", in: connectionInputs{connected: true, previous: gone, losses: 3, now: at(110),
			connectedSince: at(100)}, want: "False Unstable",
			message: "unstable", again: 20 * time.Second},
		{name: "steady after many losses", in: connectionInputs{connected: true, previous: gone, losses: 3, now: at(130),
			connectedSince: at(100)}, want: "True Connected"},
		{name: "lost for a moment after many losses", in: connectionInputs{connected: true, previous: connected, losses: 4, now: at(110),
			connectedSince: at(109)}, want: "True Connected"},
		{name: "lost while it was unstable", in: connectionInputs{previous: unstable, losses: 4, now: at(110), lostSince: at(109)},
			want: "False Unstable", message: "unstable", again: 29 * time.Second},
		{name: "away after it was unstable", in: connectionInputs{previous: unstable, losses: 4, now: at(139), lostSince: at(109)},
			want: "False Disconnected", message: "since 2026-01-02T03:05:49Z"},
		{name: "just lost", in: connectionInputs{previous: connected, now: at(100), lostSince: at(100)}, want: "True Connected",
			again: lossGrace},
		{name: "still away", in: connectionInputs{previous: connected, now: at(101), lostSince: at(100)}, want: "False Disconnected",
			message: "disconnected since 2026-01-02T03:05:40Z. Check the log of Deployment cattle-system/cattle-cluster-agent in the cluster, " +
				"and whether its Pods reach https://hub"},
		{name: "the hub has just started", in: connectionInputs{previous: connected, now: at(1), lostSince: at(0)}, want: "True Connected",
			again: startGrace - time.Second},
		{name: "was back since the start", in: connectionInputs{previous: connected, now: at(10), lostSince: at(8), started: time.Unix(0, 0)},
			want: "False Disconnected", message: "since 2026"},
		{name: "lost at the end of that time", in: connectionInputs{previous: connected, now: at(44.5), lostSince: at(44.5)},
			want: "True Connected", again: lossGrace},
		{name: "has not come back after a start", in: connectionInputs{previous: connected, now: at(45), lostSince: at(0)},
			want: "False Disconnected", message: "since 2026-01-02T03:04:00Z"},
		{name: "was disconnected before the hub started", in: connectionInputs{previous: gone, now: at(1), lostSince: at(0)},
			want:    "False Disconnected",
			message: "since then"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in
			if in.started.IsZero() {
				in.started = began
			}
			in.cluster, in.serverURL = "ns/name", "https://hub"
			got, again := connectedCondition(in)
			if have := string(got.Status) + " " + got.Reason; have != tt.want {
				t.Errorf("got %s, want %s", have, tt.want)
			}
			if !strings.Contains(got.Message, tt.message) || tt.message == "" && got.Message != "" {
				t.Errorf("the message is %q, want %q in it", got.Message, tt.message)
			}
			if again != tt.again {
				t.Errorf("looks again after %s, want %s", again, tt.again)
			}
		})
	}
}

package connection

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	connected := &metav1.Condition{Type: "Connected", Status: metav1.ConditionTrue, Reason: "Connected"}
	gone := &metav1.Condition{Type: "Connected", Status: metav1.ConditionFalse, Reason: "Disconnected", Message: "since then"}
	unstable := &metav1.Condition{Type: "Connected", Status: metav1.ConditionFalse, Reason: "Unstable", Message: "comes and goes"}
	waiting := &metav1.Condition{Type: "Connected", Status: metav1.ConditionFalse, Reason: "WaitingForAgent", Message: "old words"}
	for _, tt := range []struct {
		name    string
		facts   facts
		want    string // status and reason
		message string // a part of it
		again   time.Duration
	}{
		{name: "a new cluster", facts: facts{now: at(0)}, want: "False WaitingForAgent", message: "the control plane's plans deploy it"},
		{name: "a cluster to import", facts: facts{imported: true}, want: "False WaitingForAgent", message: `"hub import-command ns/name" shows the command`},
		{name: "words for a wait are kept up to date", facts: facts{was: waiting, imported: true}, want: "False WaitingForAgent", message: "import-command"},
		{name: "connected for the first time", facts: facts{connected: true}, want: "True Connected"},
		{name: "connected again", facts: facts{connected: true, was: gone}, want: "True Connected"},
		{name: "connected again after many losses", facts: facts{connected: true, was: gone, losses: 3, now: at(110), connectedSince: at(100)}, want: "False Unstable",
			message: "comes and goes", again: 20 * time.Second},
		{name: "steady after many losses", facts: facts{connected: true, was: gone, losses: 3, now: at(130), connectedSince: at(100)}, want: "True Connected"},
		{name: "lost for a moment after many losses", facts: facts{connected: true, was: connected, losses: 4, now: at(110), connectedSince: at(109)}, want: "True Connected"},
		{name: "lost while it was unstable", facts: facts{was: unstable, losses: 4, now: at(110), missedSince: at(109)}, want: "False Unstable", message: "comes and goes", again: 29 * time.Second},
		{name: "away after it was unstable", facts: facts{was: unstable, losses: 4, now: at(139), missedSince: at(109)}, want: "False Disconnected", message: "since 2026-01-02T03:05:49Z"},
		{name: "just lost", facts: facts{was: connected, now: at(100), missedSince: at(100)}, want: "True Connected", again: lossGrace},
		{name: "still away", facts: facts{was: connected, now: at(101), missedSince: at(100)}, want: "False Disconnected",
			message: "not been connected since 2026-01-02T03:05:40Z. In the cluster, look at the log of the Deployment cattle-cluster-agent in the namespace cattle-system, and whether its Pods reach https://hub"},
		{name: "the hub has just started", facts: facts{was: connected, now: at(1), missedSince: at(0)}, want: "True Connected", again: startGrace - time.Second},
		{name: "was back since the start", facts: facts{was: connected, now: at(10), missedSince: at(8), started: time.Unix(0, 0)}, want: "False Disconnected", message: "since 2026"},
		{name: "lost at the end of that time", facts: facts{was: connected, now: at(44.5), missedSince: at(44.5)}, want: "True Connected", again: lossGrace},
		{name: "has not come back after a start", facts: facts{was: connected, now: at(45), missedSince: at(0)}, want: "False Disconnected", message: "since 2026-01-02T03:04:00Z"},
		{name: "was away before the hub started", facts: facts{was: gone, now: at(1), missedSince: at(0)}, want: "False Disconnected", message: "since then"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.facts
			if f.started.IsZero() {
				f.started = began
			}
			f.cluster, f.serverURL = "ns/name", "https://hub"
			got, again := decide(f)
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

package plandelivery

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/testenv/recorder"
	"github.com/drover-dev/drover/hub/util/response"
)

// boundedRecorder also keeps whether there was a deadline when each part was written.
type boundedRecorder struct {
	*recorder.Answer
	bounded []bool
}

func (r *boundedRecorder) Write(p []byte) (int, error) {
	r.bounded = append(r.bounded, !r.Deadline.IsZero())
	return r.ResponseRecorder.Write(p)
}

// A watch with nothing to say for longer than one answer may take was cut off.
func TestQuietStreamStaysOpen(t *testing.T) {
	w := &boundedRecorder{Answer: recorder.New()}
	stream := &eventStream{w: w, control: http.NewResponseController(w), mayRead: func(*corev1.Secret) bool { return true }}
	response.SetTimeout(w, AnswerTimeout) // as the server does for every request
	if err := stream.begin(); err != nil {
		t.Fatal(err)
	}
	if !w.Deadline.IsZero() {
		t.Errorf("the stream would end at %v without an event", w.Deadline)
	}
	if err := stream.send(secretcache.PlanEvent{Type: "BOOKMARK", Version: 7}); err != nil {
		t.Fatal(err)
	}
	if len(w.bounded) != 1 || !w.bounded[0] {
		t.Errorf("an event must be written within a bound: %v", w.bounded)
	}
	if !w.Deadline.IsZero() {
		t.Errorf("the stream would end at %v after an event", w.Deadline)
	}
}

// TestParseWatch: how long a watch takes, and may take.
func TestParseWatch(t *testing.T) {
	for name, tc := range map[string]struct {
		seconds, longest          string
		timeout, most             time.Duration
		longestLeast, longestMost time.Duration
	}{
		"nothing asked for":      {timeout: watchTimeout, most: 2 * watchTimeout},
		"ten minutes":            {seconds: "600", timeout: 10 * time.Minute, most: 10 * time.Minute},
		"a day":                  {seconds: "86400", timeout: 2 * watchTimeout, most: 2 * watchTimeout},
		"ten minutes or an hour": {"600", "3600", 10 * time.Minute, 10 * time.Minute, watchTimeout, 2 * watchTimeout},
		"ten minutes or twenty":  {"600", "1200", 10 * time.Minute, 10 * time.Minute, 20 * time.Minute, 20 * time.Minute},
		"no number":              {"600", "for ever", 10 * time.Minute, 10 * time.Minute, 0, 0},
	} {
		query := url.Values{}
		if tc.seconds != "" {
			query.Set("timeoutSeconds", tc.seconds)
		}
		got, err := parseWatch(query, http.Header{longestWatchHeader: {tc.longest}})
		if err != nil || got.timeout < tc.timeout || got.timeout > tc.most || got.longest < tc.longestLeast || got.longest > tc.longestMost {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
}

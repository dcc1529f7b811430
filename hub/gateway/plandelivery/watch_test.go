package plandelivery

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestBookmark: a bookmark is a line with what an API server says in one, and costs little.
func TestBookmark(t *testing.T) {
	for annotation, event := range map[string]secretcache.PlanEvent{
		"":     {Type: "BOOKMARK", Version: 7},
		"true": {Type: "BOOKMARK", Version: 7, InitialEnd: true},
	} {
		line := bookmark(event)
		var got struct {
			Type   string
			Object corev1.Secret
		}
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&got); err != nil || bytes.Count(line, []byte("\n")) != 1 || !bytes.HasSuffix(line, []byte("\n")) {
			t.Errorf("%v: %s", err, line)
		}
		want := corev1.Secret{TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
		if annotation != "" {
			want.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: annotation}
		}
		if diff := cmp.Diff(want, got.Object); diff != "" || got.Type != "BOOKMARK" {
			t.Errorf("a bookmark of type %q (-want +got):\n%s", got.Type, diff)
		}
	}
	if allocated := testing.AllocsPerRun(100, func() { bookmark(secretcache.PlanEvent{Type: "BOOKMARK", Version: 700}) }); allocated > 5 {
		t.Errorf("a bookmark is encoded with %v allocations", allocated)
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

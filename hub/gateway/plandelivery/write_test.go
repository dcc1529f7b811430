package plandelivery

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/plans"
)

// slowMachine keeps until when the body must have been sent, and until when the answer must be read.
type slowMachine struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (m *slowMachine) SetReadDeadline(deadline time.Time) error {
	if !deadline.IsZero() {
		m.read = deadline
	}
	return nil
}

func (m *slowMachine) SetWriteDeadline(deadline time.Time) error {
	m.write = deadline
	return nil
}

// TestSlowMachine: a machine on a link of 64 kbit/s has the time to send a plan Secret of 1.4 MB, and then to read it.
func TestSlowMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate, late = 1_400_000, 8000, 100 * time.Second
		w := &slowMachine{ResponseRecorder: httptest.NewRecorder()}
		body := slowBody{strings.NewReader(`{"kind": "Secret", "apiVersion": "v1"}`), late}
		begun := time.Now()
		if _, err := readSecret(w, httptest.NewRequest(http.MethodPut, "/", body)); err != nil {
			t.Fatal(err)
		}
		if got := w.read.Sub(begun); got < size/rate*time.Second {
			t.Errorf("the body may take %s", got)
		}
		if got := w.write.Sub(begun.Add(late)); got < size/rate*time.Second {
			t.Errorf("the answer may take %s after the body", got)
		}
	})
}

// slowBody is a body whose end takes a while.
type slowBody struct {
	*strings.Reader
	late time.Duration
}

func (b slowBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		time.Sleep(b.late)
	}
	return n, err
}

func TestAgentChanges(t *testing.T) {
	current := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"}},
		Type:       "rke.cattle.io/machine-plan",
		Data:       map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyAppliedChecksum: []byte("old"), plans.KeyFailedOutput: []byte("x")},
	}
	tests := []struct {
		name   string
		change func(*corev1.Secret)
		want   map[string]string
		err    string
	}{
		{name: "nothing", change: func(*corev1.Secret) {}, want: map[string]string{}},
		{
			name: "results", change: func(s *corev1.Secret) {
				s.Data[plans.KeyAppliedChecksum] = []byte("new")
				s.Data[plans.KeyProbeStatuses] = []byte("{}")
				delete(s.Data, plans.KeyFailedOutput)
			},
			want: map[string]string{plans.KeyAppliedChecksum: "new", plans.KeyProbeStatuses: "{}", plans.KeyFailedOutput: "<removed>"},
		},
		{
			name: "results as text", change: func(s *corev1.Secret) {
				s.StringData = map[string]string{plans.KeyAppliedChecksum: "text"}
			},
			want: map[string]string{plans.KeyAppliedChecksum: "text"},
		},
		{name: "plan", change: func(s *corev1.Secret) { s.Data[plans.KeyPlan] = []byte("{} ") }, err: "may not change the key plan "},
		{name: "plan as text", change: func(s *corev1.Secret) { s.StringData = map[string]string{plans.KeyPlan: "x"} }, err: "the key plan "},
		{name: "plan removed", change: func(s *corev1.Secret) { delete(s.Data, plans.KeyPlan) }, err: "the key plan "},
		{name: "everything removed", change: func(s *corev1.Secret) { s.Data = nil }, err: "the key plan "},
		{name: "applied plan", change: func(s *corev1.Secret) { s.Data[plans.KeyAppliedPlan] = []byte("x") }, err: "the key appliedPlan "},
		{name: "agent's upgrade", change: func(s *corev1.Secret) { s.Data[plans.KeyAgentUpgrade] = []byte("x") }, err: "the key agent-upgrade "},
		{name: "limits", change: func(s *corev1.Secret) { s.Data[plans.KeyMaxFailures] = []byte("-1") }, err: "the key max-failures "},
		{name: "key of its own", change: func(s *corev1.Secret) { s.Data["mine"] = []byte("x") }, err: "the key mine "},
		{name: "label", change: func(s *corev1.Secret) { s.Labels["rke.cattle.io/init-node"] = "true" },
			err: "the label rke.cattle.io/init-node "},
		{name: "label removed", change: func(s *corev1.Secret) { s.Labels = nil }, err: "the label l "},
		{name: "annotation", change: func(s *corev1.Secret) { s.Annotations["a"] = "2" }, err: "the annotation a "},
		{name: "type", change: func(s *corev1.Secret) { s.Type = "Opaque" }, err: "the type"},
		{name: "immutable", change: func(s *corev1.Secret) { yes := true; s.Immutable = &yes }, err: "immutable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sent := current.DeepCopy()
			tt.change(sent)
			changes, err := agentChanges(current, sent)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for key, value := range changes {
				if got[key] = "<removed>"; value != nil {
					got[key] = string(*value)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
	for _, key := range plans.AgentKeys() {
		sent := current.DeepCopy()
		sent.Data = maps.Clone(sent.Data)
		sent.Data[key] = []byte("mine")
		if _, err := agentChanges(current, sent); err != nil {
			t.Errorf("the agent's key %s: %v", key, err)
		}
	}
}

func TestDecodeSecret(t *testing.T) {
	for _, tt := range []struct {
		body string
		name string
		ok   bool
	}{
		{body: `{"metadata":{"name":"a"},"data":{"k":"eA=="}}`, name: "a", ok: true},
		{body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"},"other":1}`, name: "b", ok: true},
		{body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`},
		{body: `{"data":{"k":"not base64"}}`},
		{body: `[]`},
		{body: ``},
		{body: "k8s\x00\xff\xff"},
	} {
		secret, err := decodeSecret([]byte(tt.body))
		if tt.ok != (err == nil) || tt.ok && secret.Name != tt.name {
			t.Errorf("%q: %v, %v", tt.body, secret, err)
		}
	}
}

func FuzzDecodeSecret(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"},"data":{"k":"eA=="}}`))
	f.Add([]byte("k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if secret, err := decodeSecret(body); (secret == nil) == (err == nil) {
			t.Errorf("%q: %v and %v", body, secret, err)
		}
	})
}

package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// body is what a server answers: first, and then what is repeated so many times, or without an end for 0.
type body struct {
	code                int
	kind, first, repeat string
	times               int
}

func (b body) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", b.kind)
	w.WriteHeader(b.code)
	_, err := io.WriteString(w, b.first)
	const together = 1000
	for i := 0; err == nil && (b.times == 0 || i < b.times); i += together {
		_, err = io.WriteString(w, strings.Repeat(b.repeat, together))
	}
}

// TestLimits: an answer that only costs memory is not read to its end. One such as clusters give is.
func TestLimits(t *testing.T) {
	var answer body
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer.ServeHTTP(w, r) }))
	defer server.Close()
	to := connectTo(t, New().Reader(secretOf(t, server)), "demo")
	const nodes, watch, list = "/api/v1/nodes", "/api/v1/nodes?watch=true", `{"kind":"List","apiVersion":"v1","items":[`
	stream := runtime.ContentTypeProtobuf + ";stream=watch"
	for name, tt := range map[string]struct {
		path   string
		answer body
		fails  bool
	}{
		"Nodes":                   {nodes, body{200, jsonType, list, `{"metadata":{"name":"a"}},`, 10_000}, false},
		"empty Nodes":             {nodes, body{200, jsonType, list, `{},`, 0}, true},
		"null for Nodes":          {nodes, body{200, jsonType, list, `null,`, 0}, true},
		"Nodes as protobuf":       {nodes, body{200, runtime.ContentTypeProtobuf, "k8s\x00", `{}`, 0}, true},
		"empty containers":        {"/api/v1/pods", body{200, jsonType, list + `{"spec":{"containers":[`, `null,`, 0}, true},
		"documents":               {nodes + "/a", body{200, jsonType, "", `{}`, 0}, true},
		"an error":                {nodes, body{403, jsonType, `{"message":"`, "x", 10_000}, false},
		"an error without end":    {nodes, body{403, jsonType, `{"message":"`, "x", 0}, true},
		"an error of a watch":     {watch, body{403, jsonType, `{"message":"`, "x", 0}, true},
		"events":                  {watch, body{200, jsonType, "", `{"type":"ADDED","object":{}}`, 10_000}, false},
		"an event without end":    {watch, body{200, jsonType, `{"object":{"a":"`, "x", 0}, true},
		"an event of values":      {watch, body{200, jsonType, `{"object":{"a":[`, "{},", 0}, true},
		"events in protobuf":      {watch, body{200, stream, "", "\x00\x00\x00\x04abcd", 10_000}, false},
		"a large one in protobuf": {watch, body{200, stream, "\x00\x20\x00\x00", "x", 1 << 20}, false},
		"a larger one":            {watch, body{200, stream, "\x00\x20\x00\x01", "x", 0}, true},
	} {
		answer = tt.answer
		got, err := to.client.Get(to.url + tt.path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, got.Body)
		_ = got.Body.Close()
		var limit *LimitError
		if (err != nil) != tt.fails || tt.fails && (!errors.As(err, &limit) || limit.Cluster != "ns/demo") {
			t.Errorf("%s: %v after %d bytes", name, err, n)
		}
	}
}

// TestPages: the pages of a list count together, and another list is read again.
func TestPages(t *testing.T) {
	const path = "/api/v1/pods"
	items := limitOf(path) * 2 / 5 / (itemCost + elementCost)
	page := `{"metadata":{"continue":"x"},"items":[` + strings.Repeat("null,", int(items))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }))
	defer server.Close()
	to := connectTo(t, New().Reader(secretOf(t, server)), "demo")
	for i, tt := range []struct {
		query string
		fails bool
	}{{"?limit=500", false}, {"?limit=500&continue=x", false}, {"?limit=500&continue=x", true}, {"?limit=500", false}, {"", false},
		{"?continue=x", false}, {"?continue=x", true}} {
		got, err := to.client.Get(to.url + path + tt.query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, got.Body)
		_ = got.Body.Close()
		if errors.As(err, new(*LimitError)) != tt.fails {
			t.Errorf("request %d for %s: %v", i, tt.query, err)
		}
	}
}

// TestPace: no more events are read in a second than a hub can handle of many clusters.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://demo/api/v1/nodes?watch=true", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {jsonType}},
			Body: io.NopCloser(strings.NewReader(strings.Repeat("{}", eventBurst+10*eventsPerSecond)))}
		begin := time.Now()
		if _, err := io.Copy(io.Discard, newAnswers(client.ObjectKey{Name: "demo"}, nil).limit(request, answer, true)); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("ten seconds' events more than are read at once took %s", took)
		}
	})
}

// endless is a text that is repeated.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

// TestInitialEvents: a server that lists by a watch, and never says that this is all, cannot send more than a list may cost. The watch ends
// without an error, so that one which has listed is followed by the next. Others go on.
func TestInitialEvents(t *testing.T) {
	const path = "/api/v1/pods"
	limit := limitOf(path)
	protobuf := "\x00\x00\x3f\xfc" + strings.Repeat("x", 0x3ffc)
	for name, tt := range map[string]struct {
		query, kind, event string
		least, most        int64
	}{
		"a list in protobuf": {"&sendInitialEvents=true", runtime.ContentTypeProtobuf, protobuf, limit / 2, limit},
		"a list in JSON":     {"&sendInitialEvents=true", jsonType, `{"object":{}}`, 1 << 10, limit / otherShare},
		"a watch":            {"", runtime.ContentTypeProtobuf, protobuf, 2 * limit, 2 * limit},
	} {
		synctest.Test(t, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://demo"+path+"?watch=true"+tt.query, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {tt.kind + ";stream=watch"}},
				Body: io.NopCloser(io.LimitReader(&endless{text: tt.event}, 2*limit))}
			n, err := io.Copy(io.Discard, newAnswers(client.ObjectKey{Name: "demo"}, nil).limit(request, answer, true))
			if err != nil || n < tt.least || n > tt.most {
				t.Errorf("%s: %d bytes were read, %v; want %d to %d", name, n, err, tt.least, tt.most)
			}
		})
	}
}

// largeNode is a Node as of a machine that has pulled many images.
func largeNode() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine-1", Labels: map[string]string{}, Annotations: map[string]string{}}}
	for i := range 30 {
		node.Labels[fmt.Sprintf("example.com/label-%d", i)] = "a value"
		node.Annotations[fmt.Sprintf("example.com/annotation-%d", i)] = strings.Repeat("x", 50)
	}
	for range 4 {
		fields := strings.TrimSuffix(strings.Repeat(`"f:a-field-of-the-node":{},`, 60), ",")
		node.ManagedFields = append(node.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubelet", Operation: "Update",
			FieldsV1: metav1.NewFieldsV1("{" + fields + "}")})
	}
	for range 10 {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "Ready", Status: "True", Reason: "KubeletReady",
			Message: "kubelet is posting ready status"})
	}
	for range 50 {
		name := "registry.example.com/some/image@sha256:" + strings.Repeat("0", 64)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{name, name}, SizeBytes: 1 << 30})
	}
	return node
}

// TestLargeClusters: 10,000 Nodes may be listed at once, and each of them may be an event.
func TestLargeClusters(t *testing.T) {
	raw, err := json.Marshal(largeNode())
	if err != nil {
		t.Fatal(err)
	}
	var total atomic.Int64
	list := &jsonScanner{limit: maxNodes, total: &total}
	list.scan([]byte(`{"items":[`))
	list.scan(raw)
	list.scan([]byte(","))
	if cost := total.Load(); len(raw) < 15_000 || cost*10_000 > maxNodes {
		t.Errorf("a Node of %d bytes costs %d, so that %d may be listed", len(raw), cost, maxNodes/cost)
	}
	if _, ok := (&jsonScanner{limit: maxEvent}).scan(raw); !ok {
		t.Error("it is too large for an event")
	}
}

// TestItemCost: what is counted for an item is what it takes at least.
func TestItemCost(t *testing.T) {
	for name, size := range map[string]uintptr{
		"Node": reflect.TypeFor[corev1.Node]().Size(), "Pod": reflect.TypeFor[corev1.Pod]().Size(),
	} {
		if size > itemCost {
			t.Errorf("a %s takes %d bytes", name, size)
		}
	}
	for name, size := range map[string]uintptr{
		"condition": reflect.TypeFor[corev1.NodeCondition]().Size(), "image": reflect.TypeFor[corev1.ContainerImage]().Size(),
		"address": reflect.TypeFor[corev1.NodeAddress]().Size(), "taint": reflect.TypeFor[corev1.Taint]().Size(),
	} {
		if size > 3*elementCost {
			t.Errorf("a %s takes %d bytes", name, size)
		}
	}
}

// TestScan: strings are no values, however a body is cut into pieces.
func TestScan(t *testing.T) {
	const text = `{"a":["x,{[\"\\",{"b":1}],"c":null}`
	want := int64(len(text) + 5*elementCost + 2*itemCost)
	for size := 1; size <= len(text); size++ {
		var total atomic.Int64
		s := &jsonScanner{limit: maxNodes, total: &total}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			s.scan([]byte(rest[:n]))
			rest = rest[n:]
		}
		if got := total.Load(); got != want || s.depth != 0 {
			t.Errorf("in pieces of %d bytes it costs %d, want %d", size, got, want)
		}
	}
}

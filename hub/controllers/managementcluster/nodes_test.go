package managementcluster

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/access/clusternodes"
	"github.com/drover-dev/drover/hub/util/limitedjson"
)

// answers is a cluster that answers lists and watches with these texts.
type answers struct{ list, watch io.Reader }

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body := a.list
	if r.URL.Query().Get("watch") == "true" {
		body = a.watch
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body),
		Request: r}, nil
}

// repeated is a text without an end: format, with a number for %d, over and over.
type repeated struct {
	format string
	n      int
	rest   []byte
	// read counts the bytes that were read.
	read *int
}

// Read implements io.Reader.
func (r *repeated) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		r.rest = []byte(r.format)
		if strings.Contains(r.format, "%d") {
			r.rest = fmt.Appendf(nil, r.format, r.n)
		}
		r.n++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	*r.read += n
	return n, nil
}

// nodesOf returns what reads the Nodes of a cluster.
func nodesOf(t testing.TB, cluster answers) *nodeSet {
	t.Helper()
	nodes, err := newNodeSet(&rest.Config{Host: "http://cluster.test", Transport: cluster})
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// TestNodeSet: lists and events in the forms that API servers use.
func TestNodeSet(t *testing.T) {
	const list = `{
	"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "7", "remainingItemCount": null}, "other": [{"a": [1]}, "}"],
	"items": [
		{"kind": "PartialObjectMetadata", "metadata": {"name": "a", "uid": "}]", "resourceVersion": "3", "labels": {"x": "{"}}},
		{"metadata": {"name": "b", "resourceVersion": "4"}, "spec": {"podCIDRs": ["10.0.0.0/24"]}}
	]}`
	const events = `{"type":"ADDED","object":{"metadata":{"name":"c","resourceVersion":"8"}}}
{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"9"}}}
{"type":"DELETED","object":{"metadata":{"name":"b","resourceVersion":"10"}}}
{"type":"DELETED","object":{"metadata":{"name":"b","resourceVersion":"11"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}
`
	nodes := nodesOf(t, answers{strings.NewReader(list), strings.NewReader(events)})
	if err := nodes.list(t.Context()); err != nil || len(nodes.names) != 2 || nodes.version != "7" {
		t.Fatalf("listed %v at version %s, %v", nodes.names, nodes.version, err)
	}
	var counts []int
	if err := nodes.watch(t.Context(), func() { counts = append(counts, len(nodes.names)) }); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(counts); got != "[3 3 2 2 2]" || nodes.version != "12" {
		t.Errorf("counted %s up to version %s", got, nodes.version)
	}
	for _, none := range []string{`{"metadata":{"resourceVersion":"1"},"items":null}`, `{"items":[],"metadata":{"resourceVersion":"1"}}`} {
		nodes := nodesOf(t, answers{list: strings.NewReader(none)})
		if err := nodes.list(t.Context()); err != nil || nodes.names == nil || len(nodes.names) != 0 {
			t.Errorf("%s: %v, %v", none, nodes.names, err)
		}
	}
}

// TestHostileNodes: lists and watches that no API server would send end with an error, after little was read.
func TestHostileNodes(t *testing.T) {
	const meta, item = `{"metadata":{"resourceVersion":"1"},"items":[`, `{"metadata":{"name":"%d","resourceVersion":"1"}},`
	for _, test := range []struct {
		name, list, repeat, want string
	}{
		{"nothing", `{}`, "", "no resourceVersion"},
		{"not JSON", `<html>`, "", "invalid character"},
		{"an array", `[]`, "", "no { where one belongs"},
		{"a list that ends early", meta + `{"metadata":{"name":"a","resourceVersion":"1"}}`, "", "EOF"},
		{"objects instead of items", `{"items":{}}`, "", "no [ where one belongs"},
		{"empty items", meta, `{},`, "no resourceVersion"},
		{"items without an end", meta, item, clusternodes.ErrTooMany.Error()},
		{"a name without an end", meta + `{"metadata":{"name":"`, "x", limitedjson.ErrTooLarge.Error()},
		{"a long name", meta + `{"metadata":{"name":"` + strings.Repeat("x", 300) + `","resourceVersion":"1"}}]}`, "", "more than 253 bytes"},
		{"a long version", meta + `{"metadata":{"name":"a","resourceVersion":"` + strings.Repeat("1", 65) + `"}}]}`, "", "no resourceVersion"},
		{"labels without an end", meta + `{"metadata":{"labels":{`, `"x%d":"y",`, limitedjson.ErrTooLarge.Error()},
		{"an unknown field without an end", `{"x":"`, "x", limitedjson.ErrTooLarge.Error()},
		{"a field name without an end", `{"`, "x", limitedjson.ErrTooLarge.Error()},
		{"space without an end", meta, " ", limitedjson.ErrTooLarge.Error()},
		{"pages", `{"metadata":{"resourceVersion":"1","continue":"x"},"items":[]}`, "", "incomplete"},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := 0
			body := io.Reader(strings.NewReader(test.list))
			if test.repeat != "" {
				body = io.MultiReader(body, &repeated{format: test.repeat, read: &read})
			}
			nodes := nodesOf(t, answers{list: body})
			if err := nodes.list(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) || nodes.names != nil {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if read > 2*limitedjson.MaxValue && test.repeat != item {
				t.Errorf("%d KiB were read", read>>10)
			}
		})
	}
	for _, test := range []struct{ name, first, repeat, want string }{
		{"an error", `{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}`, "", "code 410"},
		{"an unknown type", `{"type":"X","object":{"metadata":{"resourceVersion":"1"}}}`, "", "unknown type"},
		{"no object", `{"type":"ADDED"}`, "", "no resourceVersion"},
		{"an event without an end", `{"type":"ADDED","object":{`, `"x%d":"y",`, limitedjson.ErrTooLarge.Error()},
		{"events without an end", "", `{"type":"ADDED","object":{"metadata":{"name":"%d","resourceVersion":"1"}}}`,
			clusternodes.ErrTooMany.Error()},
		{"half an event", `{"type":"ADD`, "", "unexpected EOF"},
	} {
		t.Run("watch/"+test.name, func(t *testing.T) {
			read := 0
			body := io.Reader(strings.NewReader(test.first))
			if test.repeat != "" {
				body = io.MultiReader(body, &repeated{format: test.repeat, read: &read})
			}
			nodes := nodesOf(t, answers{watch: body})
			nodes.names = map[string]struct{}{}
			if err := nodes.watch(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// FuzzNodes reads any list and any events of a cluster.
func FuzzNodes(f *testing.F) {
	f.Add([]byte(`{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a","resourceVersion":"1"}}]}`),
		[]byte(`{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"2"}}}{"type":"DELETED","object":{}}`))
	f.Add([]byte(`{"items":null}`), []byte(`{"type":"ERROR","object":{"code":410}}`))
	f.Add([]byte(`{"items":[{"metadata":[]}]]`), []byte(`[`))
	f.Fuzz(func(t *testing.T, list, events []byte) {
		nodes := nodesOf(t, answers{bytes.NewReader(list), bytes.NewReader(events)})
		if nodes.list(t.Context()) != nil {
			nodes.names = map[string]struct{}{}
		}
		_ = nodes.watch(t.Context(), func() {
			if nodes.version == "" || len(nodes.version) > maxVersion {
				t.Errorf("version %q", nodes.version)
			}
			for name := range nodes.names {
				if len(name) > maxName {
					t.Errorf("name %q", name)
				}
			}
		})
	})
}

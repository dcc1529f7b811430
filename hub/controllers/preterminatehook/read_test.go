package preterminatehook

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

// connectionTo is a connection to one server.
type connectionTo struct {
	clustercache.ClusterCache
	config *rest.Config
}

func (c connectionTo) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return c.config, nil
}

// TestNodesOfHostileCluster: the Nodes are read by another connection, and no more of an answer than a cluster may have.
func TestNodesOfHostileCluster(t *testing.T) {
	const list = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`
	node := `{"metadata":{"name":"a","labels":{"x":"` + strings.Repeat("y", 100_000) + `"}}},`
	for _, test := range []struct {
		name, first, repeat string
		times               int // 0 for without an end
		want                string
		atMost              int64 // bytes that are read, with what the connection buffers
	}{
		{name: "two Nodes", first: list + `{"metadata":{"name":"a","labels":{"x":"y"}}},`, repeat: `{"metadata":{"name":"b"}}]}`, times: 1},
		{name: "no list", repeat: `{}`, times: 1, want: "no list of Nodes"},
		{name: "empty Nodes", first: list, repeat: `{},`, times: 100_000, want: "more than 50000 Nodes"},
		{name: "a Node without an end", first: list + `{"metadata":{"name":"`, repeat: "x", want: "longer than the hub reads", atMost: 8 << 20},
		{name: "Nodes without an end", first: list, repeat: node, want: "longer than 65536 KiB", atMost: 72 << 20},
		{name: "an error without an end", first: "no", repeat: "x", want: "longer than 1024 KiB", atMost: 8 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			var written atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if test.first == "no" {
					w.WriteHeader(http.StatusForbidden)
				}
				_, _ = w.Write([]byte(test.first))
				chunk := strings.Repeat(test.repeat, max(1, 1<<16/len(test.repeat)))
				if test.times > 0 {
					chunk = strings.Repeat(test.repeat, test.times)
				}
				for {
					n, err := w.Write([]byte(chunk))
					if written.Add(int64(n)); err != nil || test.times > 0 {
						return
					}
				}
			}))
			defer server.Close()
			r := &Reconciler{ClusterCache: connectionTo{config: &rest.Config{Host: server.URL}}}
			nodes, err := r.nodesByNewConnection(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"})
			if test.want == "" {
				if err != nil || len(nodes) != 2 || fmt.Sprint(nodes[0].Name, nodes[0].Labels, nodes[1].Name) != "amap[x:y]b" {
					t.Errorf("got %v, %v", nodes, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%d Nodes and %v, want %q", len(nodes), err, test.want)
			}
			if test.atMost > 0 && written.Load() > test.atMost {
				t.Errorf("%d MiB were read", written.Load()>>20)
			}
		})
	}
}

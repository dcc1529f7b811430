package workload

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/version"
)

func (c *Cluster) handler() http.Handler {
	mux := http.NewServeMux()
	version1 := metav1.GroupVersionForDiscovery{GroupVersion: "storage.k8s.io/v1", Version: "v1"}
	storage := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: "storage.k8s.io",
		Versions: []metav1.GroupVersionForDiscovery{version1}, PreferredVersion: version1}
	fixed := map[string]any{
		"/version": version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3+k3s1"},
		"/api":     metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis":    metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{storage}},
		"/api/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "nodes", SingularName: "node", Kind: "Node", Verbs: metav1.Verbs{"get", "list", "watch", "patch", "delete"}},
				{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list"}},
			}},
		"/apis/storage.k8s.io": storage,
		"/apis/storage.k8s.io/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "storage.k8s.io/v1",
			APIResources: []metav1.APIResource{{Name: "volumeattachments", SingularName: "volumeattachment", Kind: "VolumeAttachment",
				Verbs: metav1.Verbs{"list", "watch"}}}},
	}
	for path, answer := range fixed {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, answer) })
	}
	mux.HandleFunc("GET /api/v1/pods", serveNone(metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}))
	mux.HandleFunc("GET /apis/storage.k8s.io/v1/volumeattachments",
		serveNone(metav1.TypeMeta{Kind: "VolumeAttachmentList", APIVersion: "storage.k8s.io/v1"}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, map[string]any{}) })
	mux.HandleFunc("GET /api/v1/nodes", c.serveNodes)
	mux.HandleFunc("/api/v1/nodes/{name}", c.serveNode)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, r.Method+" "+r.URL.Path+" is not played")
	})
	return mux
}

// serveNone serves a kind of which there are no objects, ever.
func serveNone(list metav1.TypeMeta) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			write(w, http.StatusOK, metav1.PartialObjectMetadataList{TypeMeta: list, ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
			return
		}
		w.WriteHeader(http.StatusOK)
		<-r.Context().Done()
	}
}

func write(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func fail(w http.ResponseWriter, code int, message string) {
	reason := metav1.StatusReasonInvalid
	if code == http.StatusNotFound {
		reason = metav1.StatusReasonNotFound
	}
	write(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Reason: reason, Message: message})
}

func (c *Cluster) serveNodes(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		c.watch(w, r)
		return
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}}
	for _, node := range c.nodes {
		if selector.Matches(labels.Set(node.Labels)) {
			list.Items = append(list.Items, *node)
		}
	}
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	write(w, http.StatusOK, list)
}

// watch sends every change after a version, until the client leaves.
func (c *Cluster) watch(w http.ResponseWriter, r *http.Request) {
	sent, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	flusher, ok := w.(http.Flusher)
	if !ok || r.URL.Query().Get("sendInitialEvents") == "true" {
		fail(w, http.StatusUnprocessableEntity, "a watch begins after a list here")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	for {
		c.mu.Lock()
		events, changed := slices.Clone(c.events[min(sent, len(c.events)):]), c.changed
		c.mu.Unlock()
		for _, event := range events {
			if encoder.Encode(event) != nil {
				return
			}
		}
		sent += len(events)
		flusher.Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (c *Cluster) serveNode(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	node := c.Node(name)
	if node == nil {
		fail(w, http.StatusNotFound, "there is no Node "+name)
		return
	}
	switch r.Method {
	case http.MethodDelete:
		c.DeleteNode(name)
	case http.MethodPatch:
		changed, err := patch(node, r)
		if err != nil {
			fail(w, http.StatusUnprocessableEntity, err.Error())
			return
		}
		c.SetNode(changed)
		node = c.Node(name)
	}
	write(w, http.StatusOK, node)
}

// patch returns a Node as a request changes it.
func patch(node *corev1.Node, r *http.Request) (*corev1.Node, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(node)
	if err != nil {
		return nil, err
	}
	var after []byte
	if types.PatchType(r.Header.Get("Content-Type")) == types.StrategicMergePatchType {
		after, err = strategicpatch.StrategicMergePatch(before, body, corev1.Node{})
	} else {
		after, err = jsonpatch.MergePatch(before, body)
	}
	if err != nil {
		return nil, err
	}
	changed := &corev1.Node{}
	return changed, json.Unmarshal(after, changed)
}

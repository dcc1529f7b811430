package workload

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/version"
)

func (c *Cluster) handler() http.Handler {
	mux := http.NewServeMux()
	storage, k3s := group("storage.k8s.io"), group("k3s.cattle.io")
	fixed := map[string]any{
		"/version": version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3+k3s1"},
		"/api":     metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{storage, k3s}},
		"/api/v1": resources("v1",
			metav1.APIResource{Name: "nodes", SingularName: "node", Kind: "Node", Verbs: metav1.Verbs{"get", "list", "watch", "patch", "delete"}},
			metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list"}}),
		"/apis/storage.k8s.io": storage,
		"/apis/storage.k8s.io/v1": resources("storage.k8s.io/v1", metav1.APIResource{Name: "volumeattachments", SingularName: "volumeattachment",
			Kind: "VolumeAttachment", Verbs: metav1.Verbs{"list", "watch"}}),
		"/apis/k3s.cattle.io": k3s,
		"/apis/k3s.cattle.io/v1": resources("k3s.cattle.io/v1", metav1.APIResource{Name: "etcdsnapshotfiles", SingularName: "etcdsnapshotfile",
			Kind: "ETCDSnapshotFile", Verbs: metav1.Verbs{"list", "watch", "delete"}}),
	}
	for path, answer := range fixed {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, answer) })
	}
	mux.HandleFunc("GET /api/v1/pods", serveNone(metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}))
	mux.HandleFunc("GET /apis/storage.k8s.io/v1/volumeattachments",
		serveNone(metav1.TypeMeta{Kind: "VolumeAttachmentList", APIVersion: "storage.k8s.io/v1"}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, map[string]any{}) })
	mux.HandleFunc("GET /api/v1/nodes", c.nodes.serve(metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}))
	mux.HandleFunc("GET /apis/k3s.cattle.io/v1/etcdsnapshotfiles",
		c.snapshots.serve(metav1.TypeMeta{Kind: "ETCDSnapshotFileList", APIVersion: "k3s.cattle.io/v1"}))
	mux.HandleFunc("DELETE /apis/k3s.cattle.io/v1/etcdsnapshotfiles/{name}", func(w http.ResponseWriter, r *http.Request) {
		c.DeleteSnapshotFile(r.PathValue("name"))
		write(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	})
	mux.HandleFunc("/api/v1/nodes/{name}", c.serveNode)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, r.Method+" "+r.URL.Path+" is not played")
	})
	return mux
}

// group describes an API group that has v1 only.
func group(name string) metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
	return metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name,
		Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
}

func resources(groupVersion string, all ...metav1.APIResource) metav1.APIResourceList {
	return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion,
		APIResources: all}
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
		if changed != nil {
			c.SetNode(changed)
			node = c.Node(name)
		}
	}
	write(w, http.StatusOK, node)
}

// patch returns a Node as a request changes it; nil if it changes nothing, which is no event. Cluster API's controller patches the Nodes of
// some Machines each time that it sees them.
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
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, err
	}
	if after, err = json.Marshal(changed); err != nil || bytes.Equal(before, after) {
		return nil, err
	}
	return changed, nil
}

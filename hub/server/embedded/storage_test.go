package embedded

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// TestBookmarks: a watch of a kind that nobody writes is told what was written of others, so that it can be continued from there after etcd
// was compacted. A watch that takes no bookmarks gets none.
func TestBookmarks(t *testing.T) {
	server, client := start(t, Options{DataDir: t.TempDir(), bookmarks: 100 * time.Millisecond})
	definitions, err := apiextensions.NewForConfig(server.RestConfig())
	if err != nil {
		t.Fatal(err)
	}
	quiet, err := client.CoreV1().ServiceAccounts("nowhere").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Stop()
	for name, list := range map[string]func() (string, func(metav1.ListOptions) (watch.Interface, error), error){
		"ConfigMaps": func() (string, func(metav1.ListOptions) (watch.Interface, error), error) {
			maps := client.CoreV1().ConfigMaps("nowhere")
			found, err := maps.List(t.Context(), metav1.ListOptions{})
			return found.ResourceVersion, func(o metav1.ListOptions) (watch.Interface, error) { return maps.Watch(t.Context(), o) }, err
		},
		"CustomResourceDefinitions": func() (string, func(metav1.ListOptions) (watch.Interface, error), error) {
			crds := definitions.ApiextensionsV1().CustomResourceDefinitions()
			found, err := crds.List(t.Context(), metav1.ListOptions{})
			return found.ResourceVersion, func(o metav1.ListOptions) (watch.Interface, error) { return crds.Watch(t.Context(), o) }, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			version, start, err := list()
			if err != nil {
				t.Fatal(err)
			}
			watched, err := start(metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
			if err != nil {
				t.Fatal(err)
			}
			defer watched.Stop()
			written := writeConfigMap(t, client)
			for event := range watched.ResultChan() {
				if event.Type != watch.Bookmark {
					t.Fatalf("got %s %v", event.Type, event.Object)
				}
				if versionOf(t, event.Object.(metav1.Object)) >= versionOf(t, written) {
					return
				}
			}
			t.Error("the watch has ended without a bookmark")
		})
	}
	select {
	case event := <-quiet.ResultChan():
		t.Errorf("got %s %v", event.Type, event.Object)
	default:
	}
}

func writeConfigMap(t *testing.T, client kubernetes.Interface) metav1.Object {
	t.Helper()
	written, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return written
}

func versionOf(t *testing.T, object metav1.Object) uint64 {
	t.Helper()
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}
